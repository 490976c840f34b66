//go:build tools

// Names h2spec, so that go.mod and go.sum pin it with all that it is made of. `scripts/setup test` builds it from here.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
