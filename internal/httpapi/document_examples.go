package httpapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// goldens are the responses that the tests compare with those of the service.
//
//go:embed golden/*.json
var goldens embed.FS

// examples has the golden files that are shown with an operation.
var examples = map[string][]string{
	"health":                  {"readyz"},
	"livez":                   {"livez"},
	"readyz":                  {"readyz"},
	"mint-admission":          {"mint_admission"},
	"remove-cart":             {"remove_cart"},
	"get-cart":                {"get_cart", "cart_waiting"},
	"checkout-cart":           {"checkout"},
	"extend-cart":             {"extend_cart"},
	"add-item":                {"add_item_accepted", "accepted_waiting", "add_item_in_time"},
	"remove-item":             {"remove_item"},
	"set-item":                {"set_item_accepted", "set_item_in_time"},
	"remove-kit":              {"remove_kit"},
	"transfer-cart":           {"transfer_cart"},
	"begin-checkout":          {"begin_checkout", "begin_checkout_replayed"},
	"get-checkout":            {"get_checkout", "get_checkout_committed"},
	"answer-checkout":         {"answer_checkout"},
	"get-group":               {"group"},
	"put-group":               {"put_group"},
	"read-key":                {"read_key"},
	"list-kits":               {"list_kits"},
	"delete-kit":              {"delete_kit"},
	"get-kit":                 {"kit"},
	"put-kit":                 {"kit"},
	"list-lanes":              {"list_lanes_hot"},
	"unpin-variant":           {"unpin"},
	"pin-variant":             {"pin"},
	"control-lane":            {"control_lane"},
	"mint-live-ticket":        {"live_ticket"},
	"get-ops-history":         {"history_reservation"},
	"overview":                {"overview"},
	"search":                  {"search"},
	"get-request":             {"get_request_queued", "get_request_done", "get_request_failed", "request_lines", "request_waiting"},
	"retry-request":           {"retry", "retry_held"},
	"get-reservation":         {"get_reservation"},
	"commit-reservation":      {"commit_reservation", "reservation_part"},
	"extend-reservation":      {"extend_reservation"},
	"get-reservation-history": {"reservation_history"},
	"release-reservation":     {"release_reservation"},
	"return-reservation":      {"reservation_returned"},
	"list-stocks":             {"list_stocks", "list_stocks_some"},
	"import-stocks":           {"import_csv"},
	"transfer-stock":          {"transfer_stock"},
	"delete-stock":            {"delete_stock"},
	"get-stock":               {"get_stock_reserved"},
	"put-stock":               {"put_stock"},
	"adjust-stock":            {"adjust_stock"},
	"list-allotments":         {"allotments"},
	"delete-allotment":        {"delete_allotment"},
	"get-allotment":           {"allotment_taken"},
	"put-allotment":           {"allotment"},
	"list-units":              {"list_units"},
	"import-units":            {"import_units"},
	"get-unit":                {"get_unit"},
}

// placeholder is a value that differs between runs, in a golden file.
var placeholder = regexp.MustCompile(`<time>|<(uuid|key|tag) (\d+)>`)

// golden reads a golden file, with a value for each placeholder.
func readGolden(name string) (status int, body any, err error) {
	text, err := goldens.ReadFile("golden/" + name + ".json")
	if err != nil {
		return 0, nil, err
	}
	filled := placeholder.ReplaceAllStringFunc(string(text), func(found string) string {
		kind, number, _ := strings.Cut(strings.Trim(found, "<>"), " ")
		n, _ := strconv.Atoi(number)
		switch kind {
		case "time":
			return "2026-11-28T10:00:00Z"
		case "key":
			return fmt.Sprintf("hf_%06d", n)
		case "tag":
			return fmt.Sprintf("%032x", n)
		default:
			return fmt.Sprintf("019acd2c-4a00-7000-8000-%012d", n)
		}
	})
	var kept struct {
		Status int
		Body   any
	}
	if err := json.Unmarshal([]byte(filled), &kept); err != nil {
		return 0, nil, fmt.Errorf("read golden/%s.json: %w", name, err)
	}
	return kept.Status, kept.Body, nil
}

// addExamples shows the golden files with their operations.
func (s *service) addExamples() error {
	for _, item := range s.api.OpenAPI().Paths {
		for _, op := range operationsOf(item) {
			for _, name := range examples[op.OperationID] {
				status, body, err := readGolden(name)
				if err != nil {
					return err
				}
				response := op.Responses[strconv.Itoa(status)]
				if response == nil || response.Content["application/json"] == nil {
					return fmt.Errorf("the example %s of %s has the status %d, which is not documented", name, op.OperationID, status)
				}
				media := response.Content["application/json"]
				if media.Examples == nil {
					media.Examples = map[string]*huma.Example{}
				}
				media.Examples[name] = &huma.Example{Value: body}
			}
		}
	}
	return nil
}
