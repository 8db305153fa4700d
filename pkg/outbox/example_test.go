package outbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// perTenant publishes each tenant's events to topics of its own, which a setting
// cannot do here: the tenant is a part of the key.
type perTenant struct{}

func (perTenant) Transform(e *outbox.Event) error {
	tenant, rest, found := bytes.Cut(e.Key, []byte("/"))
	if !found {
		return errors.New("the key names no tenant")
	}
	e.Topic = string(tenant) + "." + e.Topic
	e.Key = rest
	e.Headers = append(e.Headers, outbox.Header{Key: "tenant", Value: tenant})
	return nil
}

// A Transform belongs to one table of pipeline.Config.Mapping.
func ExampleTransform() {
	mapping, err := outbox.NewMapping([]outbox.MappingConfig{{
		Schema: "public", Table: "outbox", Topic: "orders", KeyColumn: "key", ValueColumn: "payload", Transform: perTenant{},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	const textOID = 25
	row := &decode.Row{
		Relation: &decode.Relation{Namespace: "public", Name: "outbox", Columns: []decode.Column{
			{Name: "key", TypeOID: textOID}, {Name: "payload", TypeOID: textOID},
		}},
		Values: []decode.Value{
			{Format: decode.ValueText, Data: []byte("acme/order-7")}, {Format: decode.ValueText, Data: []byte(`{"cents": 500}`)},
		},
		Begin: &decode.Begin{CommitTime: time.Unix(0, 0)},
	}
	var event outbox.Event
	if _, err := mapping.Map(row, &event); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %s %s %s=%s\n", event.Topic, event.Key, event.Value, event.Headers[3].Key, event.Headers[3].Value)
	// Output: acme.orders order-7 {"cents": 500} tenant=acme
}
