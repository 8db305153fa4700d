// Command walstream streams a PostgreSQL outbox table to Kafka.
//
// This package is thin: it parses settings, calls the packages below and prints.
//
//	flags ──┐
//	WALSTREAM_* ──┤ newest word wins ──> Config ── Validate ──> stream | check | config
//	--config FILE ──┤
//	defaults ──┘
//
// Invariants:
//   - Config's struct tags are the one table of settings: flag, variable, file
//     key, default, range, help and secrecy all come from there.
//   - No setting is silently ignored: an unknown name, in any of the three
//     places, is refused with its place and the nearest valid name.
//   - All faults are reported at once, and none of them shows a secret.
//
// What surprised us: kong stops at its first error, prefers resolvers to
// variables, and ignores variables it does not know; so its mappers note faults
// instead of failing, and file and variables are two resolvers (see load.go and
// docs/decisions/0001). A Kubernetes Service called "walstream" puts variables
// with our prefix into every pod of its namespace (see kubernetesLink).
package main
