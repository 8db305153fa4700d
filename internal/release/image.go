package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"time"
)

// image of the binary and the authorities for TLS, as the Dockerfile makes one:
// an OCI layout with a manifest.json for docker load.
func (b *binary) image(version string, authorities []byte) ([]byte, error) {
	layer, err := archive(b.at, []file{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities},
		{"walstream", 0o755, b.content},
	})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"created": b.at.UTC().Format(time.RFC3339), "os": b.os, "architecture": b.arch,
		"config": map[string]any{
			"User": "65532:65532", "Entrypoint": []string{"/walstream"}, "ExposedPorts": map[string]any{"9475/tcp": struct{}{}},
			"Labels": map[string]string{
				"org.opencontainers.image.title": "walstream", "org.opencontainers.image.version": version,
				"org.opencontainers.image.revision": b.revision, "org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history": []any{map[string]string{"created": b.at.UTC().Format(time.RFC3339), "created_by": "make release"}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest,
		"config": describe("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{describe("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, err
	}
	tag := "walstream:" + tagOf(version)
	entry := describe(mediaManifest, manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": "docker.io/library/" + tag, "org.opencontainers.image.ref.name": tagOf(version)}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{entry},
	})
	if err != nil {
		return nil, err
	}
	docker, err := json.Marshal([]any{map[string]any{
		"Config": blob(config), "RepoTags": []string{tag}, "Layers": []string{blob(layer)},
	}})
	if err != nil {
		return nil, err
	}
	return archive(b.at, []file{
		{blob(layer), 0o644, layer},
		{blob(config), 0o644, config},
		{blob(manifest), 0o644, manifest},
		{"index.json", 0o644, index},
		{"manifest.json", 0o644, docker},
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	})
}

const mediaManifest = "application/vnd.oci.image.manifest.v1+json"

// tagOf a version: a tag has no +.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "-") }

func blob(content []byte) string { return "blobs/sha256/" + digest(content) }

func describe(mediaType string, content []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": "sha256:" + digest(content), "size": len(content)}
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// archive of files and the directories above them, all of the same time and owner.
func archive(at time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	var directory func(name string) error
	directory = func(name string) error {
		if made[name] {
			return nil
		}
		if err := directory(path.Dir(name)); err != nil {
			return err
		}
		made[name] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR})
	}
	for _, f := range files {
		if err := directory(path.Dir(f.name)); err != nil {
			return nil, err
		}
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
