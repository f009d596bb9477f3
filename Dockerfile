# One image with the four programs; what runs it names one of them: /api, /worker, /oneshot sweep, /holdfast keys.
#
#   docker build --build-arg VERSION=1.2.3 -t holdfast:1.2.3 .

FROM golang:1.26 AS build
ARG VERSION=""
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Without CGO_ENABLED=0 the programs need a C library, which the image does not have. -trimpath and no VCS stamp make
# the same source give the same bytes.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/holdfast/holdfast/cmd/internal/boot.Version=$VERSION" \
    -o /out/ ./cmd/api ./cmd/worker ./cmd/oneshot ./cmd/holdfast

# An empty base: the programs are static, have time zones and certificate roots compiled in, read no file and write
# none. So there is no package to patch, and nothing to run but these four.
FROM scratch
COPY --from=build /out/ /
# A number, because an empty root has no /etc/passwd; 65532 is "nonroot" in the distroless images.
USER 65532:65532
# No ENTRYPOINT and no CMD: a manifest that forgets to name a program fails, instead of starting the wrong one.
