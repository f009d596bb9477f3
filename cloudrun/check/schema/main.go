// Command schema prints, as JSON, what Google's Terraform provider says of the resources used under cloudrun/terraform:
// their attributes and blocks, as Terraform itself receives them. cloudrun/check reads the result, so that neither a
// check nor CI compiles the provider. It is a module of its own for the same reason.
//
//	make generate
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	frameworkschema "github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"github.com/hashicorp/terraform-provider-google/google/registry"
	_ "github.com/hashicorp/terraform-provider-google/google/services/cloudrunv2"
	_ "github.com/hashicorp/terraform-provider-google/google/services/cloudscheduler"
	_ "github.com/hashicorp/terraform-provider-google/google/services/monitoring"
	_ "github.com/hashicorp/terraform-provider-google/google/services/resourcemanager"
	"github.com/hashicorp/terraform-provider-google/google/services/secretmanager"
	_ "github.com/hashicorp/terraform-provider-google/google/services/sql"
)

// used are the resources under cloudrun/terraform. One that is missing here is a finding of the check.
var used = []string{
	"google_cloud_run_v2_job",
	"google_cloud_run_v2_job_iam_member",
	"google_cloud_run_v2_service",
	"google_cloud_run_v2_worker_pool",
	"google_cloud_scheduler_job",
	"google_monitoring_alert_policy",
	"google_monitoring_dashboard",
	"google_project_iam_member",
	"google_project_service",
	"google_secret_manager_secret",
	"google_secret_manager_secret_iam_member",
	"google_secret_manager_secret_version",
	"google_service_account",
	"google_sql_database",
	"google_sql_database_instance",
	"google_sql_user",
}

// Block is a resource, or a block in one.
type Block struct {
	Attributes map[string]Attribute `json:"attributes,omitempty"`
	Blocks     map[string]Nested    `json:"blocks,omitempty"`
}

// Attribute is one argument; Computed without Optional is one that can only be read.
type Attribute struct {
	Type       json.RawMessage `json:"type"`
	Required   bool            `json:"required,omitempty"`
	Optional   bool            `json:"optional,omitempty"`
	Computed   bool            `json:"computed,omitempty"`
	WriteOnly  bool            `json:"write_only,omitempty"`
	Deprecated bool            `json:"deprecated,omitempty"`
	// Values are those the provider's description lists; none where it lists none.
	Values []string `json:"values,omitempty"`
}

// Nested is a block and how many of it there may be; Max 0 is any number.
type Nested struct {
	Block
	Min int64 `json:"min,omitempty"`
	Max int64 `json:"max,omitempty"`
}

// version is the provider's, which go.mod has as a pseudo-version: its tags are of a major version that Go's modules do
// not know. CHANGELOG.md of the module has it at its top.
const version = "8.0"

// What the file is made from; the check compares it with what is there.
var (
	//go:embed main.go
	program string
	//go:embed go.mod
	modules string
)

// Schema is the file.
type Schema struct {
	// Source is the SHA-256 of this file and go.mod, in hexadecimal.
	Source    string           `json:"source"`
	Version   string           `json:"version"`
	Resources map[string]Block `json:"resources"`
	Ephemeral map[string]Block `json:"ephemeral"`
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	provider := &schema.Provider{ResourcesMap: map[string]*schema.Resource{}}
	for _, name := range used {
		provider.ResourcesMap[name] = registry.Resource(name)
	}
	all, err := provider.GRPCProvider().GetProviderSchema(ctx, &tfprotov5.GetProviderSchemaRequest{})
	if err != nil {
		return fmt.Errorf("read the provider's schema: %w", err)
	}
	for _, d := range all.Diagnostics {
		return fmt.Errorf("read the provider's schema: %s: %s", d.Summary, d.Detail)
	}
	source := sha256.Sum256([]byte(program + modules))
	out := Schema{Source: hex.EncodeToString(source[:]), Version: version, Resources: map[string]Block{}, Ephemeral: map[string]Block{}}
	for name, s := range all.ResourceSchemas {
		if out.Resources[name], err = block(s.Block); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	const secret = "google_secret_manager_secret_version"
	if out.Ephemeral[secret], err = ephemeralBlock(ctx, secretmanager.GoogleEphemeralSecretManagerSecretVersion()); err != nil {
		return fmt.Errorf("ephemeral %s: %w", secret, err)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func block(b *tfprotov5.SchemaBlock) (Block, error) {
	out := Block{Attributes: map[string]Attribute{}, Blocks: map[string]Nested{}}
	for _, a := range b.Attributes {
		kind, err := a.Type.MarshalJSON() //nolint:staticcheck // deprecated for providers, whose types Terraform decodes
		if err != nil {
			return Block{}, fmt.Errorf("type of %s: %w", a.Name, err)
		}
		out.Attributes[a.Name] = Attribute{
			Type: kind, Required: a.Required, Optional: a.Optional, Computed: a.Computed,
			WriteOnly: a.WriteOnly, Deprecated: a.Deprecated, Values: values(a.Description),
		}
	}
	for _, n := range b.BlockTypes {
		inner, err := block(n.Block)
		if err != nil {
			return Block{}, fmt.Errorf("%s: %w", n.TypeName, err)
		}
		out.Blocks[n.TypeName] = Nested{Block: inner, Min: n.MinItems, Max: n.MaxItems}
	}
	return out, nil
}

func ephemeralBlock(ctx context.Context, r ephemeral.EphemeralResource) (Block, error) {
	var got ephemeral.SchemaResponse
	r.Schema(ctx, ephemeral.SchemaRequest{}, &got)
	if got.Diagnostics.HasError() {
		return Block{}, fmt.Errorf("%v", got.Diagnostics)
	}
	out := Block{Attributes: map[string]Attribute{}}
	for name, a := range got.Schema.Attributes {
		kind := `"string"`
		if _, yes := a.(frameworkschema.BoolAttribute); yes {
			kind = `"bool"`
		}
		out.Attributes[name] = Attribute{
			Type: json.RawMessage(kind), Required: a.IsRequired(), Optional: a.IsOptional(), Computed: a.IsComputed(),
		}
	}
	return out, nil
}

var listed = regexp.MustCompile(`Possible values: \[([^\]]*)\]`)

// values are what a generated description lists: `Possible values: ["A", "B"]`.
func values(description string) (all []string) {
	found := listed.FindStringSubmatch(description)
	if found == nil {
		return nil
	}
	for v := range strings.SplitSeq(found[1], ",") {
		all = append(all, strings.Trim(v, "\" `"))
	}
	return all
}
