package cases

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// proxied are the brokers of this package that faults are made on, each in the hands
// of one case at a time: walstream reaches it through the proxy, the tests go around it.
var proxied struct {
	sync.Mutex
	all, idle []proxiedBroker
}

type proxiedBroker struct {
	kafka *testenv.Kafka
	proxy *testenv.Proxy
}

// proxiedRig is a rig whose broker is behind a proxy, and the proxy.
func proxiedRig(t *testing.T, pg *testenv.Postgres) (*rig, *testenv.Proxy) {
	t.Helper()
	broker := takeProxied(t)
	t.Cleanup(broker.giveBack)
	r := newRig(t, pg, broker.kafka.Brokers)
	r.brokersSeen = broker.proxy.Addrs
	return r, broker.proxy
}

func takeProxied(t *testing.T) proxiedBroker {
	t.Helper()
	proxied.Lock()
	defer proxied.Unlock()
	if last := len(proxied.idle) - 1; last >= 0 {
		broker := proxied.idle[last]
		proxied.idle = proxied.idle[:last]
		return broker
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	kafka, err := testenv.StartKafka(ctx, testenv.KafkaOptions{})
	if err != nil {
		testenv.SkipOrFail(t, err)
	}
	proxy, err := kafka.StartProxy()
	if err != nil {
		t.Fatal(err)
	}
	broker := proxiedBroker{kafka, proxy}
	proxied.all = append(proxied.all, broker)
	return broker
}

func (b proxiedBroker) giveBack() {
	b.proxy.Restore()
	proxied.Lock()
	defer proxied.Unlock()
	proxied.idle = append(proxied.idle, b)
}
