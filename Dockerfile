# One image with the four programs. The command names one of them: /api, /worker,
# /oneshot sweep, /holdfast keys.
#
#   docker build --build-arg VERSION=1.2.3 -t holdfast:1.2.3 .

FROM golang:1.26 AS build
ARG VERSION=""
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Without CGO_ENABLED=0 the programs need a C library, which the image does not
# have. With -trimpath and no VCS stamp the same source gives the same bytes.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/holdfast/holdfast/cmd/internal/boot.Version=$VERSION" \
    -o /out/ ./cmd/api ./cmd/worker ./cmd/oneshot ./cmd/holdfast

# An empty base: the programs are static, contain time zones and certificate
# roots, and neither read nor write files. So there is no package to patch, and no
# other program to run.
FROM scratch
COPY --from=build /out/ /
# A number, because an empty root has no /etc/passwd; 65532 is "nonroot" in the distroless images.
USER 65532:65532
# No ENTRYPOINT and no CMD: a manifest that names no program fails, instead of
# starting the wrong one.
