# One static binary and the authorities for TLS, run by nobody. The time zone
# database is not needed: walstream speaks UTC.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /walstream ./cmd/walstream

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /walstream /walstream
USER 65532:65532
EXPOSE 9475
ENTRYPOINT ["/walstream"]
