// Command release makes of built binaries what goes out with them: for each a bill
// of materials (CycloneDX), for Linux an image, and the checksums of everything.
//
//	make release ── go build, for each platform ──> dist/walstream-<os>-<arch>
//	                                                   │ go run ./internal/release -version v1.2.3 dist
//	                                                   ├──> walstream-<os>-<arch>.cdx.json   what is in it
//	                                                   ├──> walstream-<os>-<arch>.image.tar  docker load -i
//	                                                   └──> SHA256SUMS
//
// Invariants:
//   - What is written depends on the binaries, the version and the authorities for
//     TLS alone: no clock, no host name. The same commit makes the same bytes.
//   - A bill says what the linker says (go version -m), not what go.mod allows.
//   - A binary of a tree with changes that are not committed is no release.
//
// What surprised us: an image needs no engine. One of a binary and a file is two
// small JSON documents and a tar, in a layout that docker load, podman load and
// skopeo read.
package main
