// Package ops is what others see of a running pipeline: metrics, probes and the
// status page, over HTTP. It owns nothing: every answer is made from the
// pipeline's published Progress, so a slow scrape never holds up the stream.
//
//	/livez    200 while the loop ticks; for a liveness probe, no dependency in it
//	/readyz   200 when streaming or able to take over; for a readiness probe
//	/healthz  503 when work waits and none is done, or on a refusal; for monitors,
//	          never for a probe: an outage of the broker would kill every pod
//	/status   all positions, as JSON
//	/metrics  Prometheus
//
// A service manager that asked for it (systemd, Type=notify) is told the same
// without asking: Manager.
package ops
