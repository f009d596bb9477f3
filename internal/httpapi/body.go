package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// bodyMax is the size of the largest JSON body, in bytes.
const bodyMax = 64 << 10

// payload is a JSON body. Its fields read into the value whose method is
// called.
type payload interface{ fields() []field }

// otherForm is a payload whose body has one of two forms: the fields of fields,
// or those of otherFields. The latter are made only for a body that has one.
type otherForm interface {
	payload
	otherFields() []field
	// checkOther adds to wrong what is wrong with a body that has one of the
	// other fields. given are the fields that the body has.
	checkOther(given []string, wrong fieldErrors) fieldErrors
	// describeForms adds to the schema of the body which fields go together.
	describeForms(schema *huma.Schema)
}

// allFields returns the fields of a body in both of its forms.
func allFields(p payload) []field {
	if other, ok := p.(otherForm); ok {
		return append(p.fields(), other.otherFields()...)
	}
	return p.fields()
}

// emptyBody is no body, or an empty object.
type emptyBody struct{}

func (*emptyBody) fields() []field { return nil }

// decode reads the JSON body of the request into to.
//
// Errors: errMediaType, *http.MaxBytesError, errMalformed, errStopping,
// fieldErrors.
func (req *request) decode(to payload) error {
	if err := req.checkMediaType("application/json"); err != nil {
		return err
	}
	limited, err := req.limitedBody(bodyMax)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(bodyReader{limited})
	if err != nil {
		return err
	}
	return decodeObject(body, to)
}

// limitedBody returns the body of the request. Reading past the limit, in
// bytes, fails with an *http.MaxBytesError. A body whose declared length is
// beyond the limit fails here and is not read.
func (req *request) limitedBody(limit int64) (io.Reader, error) {
	if req.http.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if req.http.ContentLength >= 0 { // the server reads no more than that
		return req.http.Body, nil
	}
	return http.MaxBytesReader(req.w, req.http.Body, limit), nil
}

// checkMediaType returns errMediaType unless the body, if there is one, has one
// of the media types. A body without a media type counts as the first of them.
func (req *request) checkMediaType(types ...string) error {
	sent, _, err := singleHeader(req.http.Header, "Content-Type")
	if err != nil {
		return fmt.Errorf("%w: more than one", errMediaType)
	}
	if req.http.ContentLength == 0 || sent == types[0] || sent == "" {
		return req.checkContentEncoding()
	}
	mediaType, parameters, err := mime.ParseMediaType(sent)
	if err != nil {
		return fmt.Errorf("%w: %.100q", errMediaType, sent)
	}
	if charset, ok := parameters["charset"]; ok && !isUTF8(charset) {
		return fmt.Errorf("%w: charset %.100q", errMediaType, charset)
	}
	if !slices.Contains(types, mediaType) {
		return fmt.Errorf("%w: %.100q", errMediaType, mediaType)
	}
	return req.checkContentEncoding()
}

func isUTF8(charset string) bool {
	switch charset {
	case "utf-8", "UTF-8", "utf8", "UTF8", "us-ascii", "US-ASCII":
		return true
	}
	return false
}

func (req *request) checkContentEncoding() error {
	for _, encoding := range req.http.Header.Values("Content-Encoding") {
		if encoding != "" && encoding != "identity" {
			return fmt.Errorf("%w: content encoding %.100q", errMediaType, encoding)
		}
	}
	return nil
}

// bodyReader wraps errors of reading a body in a *bodyError, so that they do
// not count as errors of the database.
type bodyReader struct{ r io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == nil || err == io.EOF { // an error that wraps io.EOF is not the end
		return n, err
	}
	return n, &bodyError{err}
}

// bodyError means that a body could not be read to its end.
type bodyError struct{ cause error }

func (e *bodyError) Error() string { return "read the body: " + e.cause.Error() }

// Is reports whether target is the error's class: errStopping if the program
// cut the body off, else errMalformed.
func (e *bodyError) Is(target error) bool {
	if errors.Is(e.cause, errStopping) {
		return target == errStopping
	}
	return target == errMalformed
}

// isLate reports whether the body did not arrive in time.
func (e *bodyError) isLate() bool { return errors.Is(e.cause, os.ErrDeadlineExceeded) }

// As finds the cause only if it is an *http.MaxBytesError.
func (e *bodyError) As(target any) bool {
	tooMuch, ok := target.(**http.MaxBytesError)
	return ok && errors.As(e.cause, tooMuch)
}
