// Package check holds dashboard, alert rules and runbooks against the binary: a
// module of its own, since PromQL's parser brings dependencies that walstream
// does not have. make monitoring-check scrapes the real binary (deploy/live) and
// names the directory of the scrapes in WALSTREAM_MONITORING.
package check
