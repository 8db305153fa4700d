// Package check renders the Helm chart as Helm does and decodes each manifest
// strictly into the Kubernetes API types: a field that the API does not have is an
// error. deploy/kubernetes/plain is the chart's rendering with its default values,
// and this test is what writes it:
//
//	cd deploy/kubernetes/check && go test -update .
//
// A module of its own, since Helm and the API types bring dependencies that
// walstream does not have.
package check
