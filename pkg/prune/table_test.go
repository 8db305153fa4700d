package prune

import (
	"strings"
	"testing"
)

func TestStatements(t *testing.T) {
	odd := &table{schema: "public", name: `odd "name"`, age: "made at", ageType: "timestamp with time zone", key: []string{"a", "B"}, types: []string{"text", "integer"}}
	indexed := *odd
	indexed.indexed = true
	byKey, byAge, stamp := odd.old("x"), indexed.old("x"), odd.unstamped("published_at")
	for got, want := range map[string]string{
		byKey.page(false, 5): `SELECT "a"::text, "B"::text FROM "public"."odd ""name""" WHERE "made at" < $1::text::timestamptz ORDER BY "a", "B" LIMIT 5`,
		byKey.page(true, 5): `SELECT "a"::text, "B"::text FROM "public"."odd ""name""" WHERE "made at" < $1::text::timestamptz` +
			` AND ("a", "B") > ($2::text::text, $3::text::integer) ORDER BY "a", "B" LIMIT 5`,
		byAge.page(true, 5): `SELECT "made at"::text, "a"::text, "B"::text FROM "public"."odd ""name""" WHERE "made at" < $1::text::timestamptz` +
			` AND ("made at", "a", "B") > ($2::text::timestamp with time zone, $3::text::text, $4::text::integer) ORDER BY "made at", "a", "B" LIMIT 5`,
		stamp.page(true, 5): `SELECT "a"::text, "B"::text FROM "public"."odd ""name""" WHERE "published_at" IS NULL` +
			` AND ("a", "B") > ($1::text::text, $2::text::integer) ORDER BY "a", "B" LIMIT 5`,
		byAge.statement(): `DELETE FROM "public"."odd ""name""" WHERE ("a", "B") IN (SELECT k0::text, k1::integer FROM unnest($2::text[], $3::text[]) AS keys(k0, k1))` +
			` AND "made at" < $1::text::timestamptz`,
		stamp.statement(): `UPDATE "public"."odd ""name""" SET "published_at" = now() WHERE ("a", "B") IN (SELECT k0::text, k1::integer` +
			` FROM unnest($1::text[], $2::text[]) AS keys(k0, k1)) AND "published_at" IS NULL`,
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// Only a bound that is one plain value can be compared.
func TestUpperBound(t *testing.T) {
	for bound, want := range map[string]string{
		`FOR VALUES FROM ('2026-11-01 00:00:00+00') TO ('2026-12-01 00:00:00+00')`: `'2026-12-01 00:00:00+00'`,
		`FOR VALUES FROM (MINVALUE) TO (100)`:                                      `100`,
		`FOR VALUES FROM ('-100') TO ('-1')`:                                       `'-1'`,
		`FOR VALUES FROM (100) TO (MAXVALUE)`:                                      ``,
		`FOR VALUES FROM (1, 2) TO (3, 4)`:                                         ``,
		`FOR VALUES IN ('a')`:                                                      ``,
		`DEFAULT`:                                                                  ``,
		`FOR VALUES FROM ('a') TO ('it''s')`:                                       ``,
		`FOR VALUES WITH (modulus 4, remainder 0)`:                                 ``,
	} {
		got := ""
		if m := upperBound.FindStringSubmatch(bound); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", bound, got, want)
		}
	}
}

// A mark names its table, so that none is dropped for another one's sake.
func TestMark(t *testing.T) {
	a, b := &table{schema: "a", name: "outbox"}, &table{schema: "b", name: "outbox"}
	if a.mark() == b.mark() || !strings.Contains(a.mark(), `"a"."outbox"`) || !strings.Contains(literal(a.mark()), a.mark()) {
		t.Errorf("%s, %s", a.mark(), b.mark())
	}
}
