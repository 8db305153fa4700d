// Package rollout plays what Kubernetes does to the pods of a Deployment: the
// kubelet that probes them, and the controller that replaces them when the
// manifest changes. It decides by what stands in the manifest, so a test can
// show that an update with these probes comes to its end.
//
//	Deployment (YAML) ──> Cluster ──> Process: probe, terminate, exited
//	                      kubelet: readiness, liveness, restarts, grace
//	                      controller: maxSurge, maxUnavailable, minReadySeconds
//
// The rules are those of the Deployment controller (rolling.go,
// reconcileNewReplicaSet and reconcileOldReplicaSets): a pod that is being
// terminated counts no more, old pods that do not work go first, and one step is
// taken at a time. There is no scheduler, no back-off of images, and the order of
// old pods is the caller's, since a cluster's may be any.
package rollout
