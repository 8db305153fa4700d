package outbox

// template is the text of a setting with columns in it; nil is none.
type template struct {
	parts []patternPart
	at    []int  // places of the columns in the table's list
	fixed []byte // the whole of one without columns
}

// template reads a setting's text and lists its columns, which must be there.
func (b *builder) template(setting, text string) *template {
	if text == "" {
		return nil
	}
	parts, err := parseTemplate(setting, text)
	if err != nil {
		b.fault(err)
		return nil
	}
	t := &template{parts: parts}
	for _, piece := range parts {
		at := -1
		if piece.column != "" && (setting != "schema-subject" || piece.column != topicPlaceholder) {
			at = b.add(partTemplate, piece.column, setting, text)
		}
		t.at = append(t.at, at)
	}
	if len(parts) == 1 && parts[0].column == "" {
		t.fixed = []byte(text)
	}
	return t
}

// topicPlaceholder stands for the record's topic in a subject.
const topicPlaceholder = "topic"

// fillTemplate writes a template's text. It is nil when there is none, or when a
// column in it is NULL: that one is returned too.
func (r *rowMapper) fillTemplate(t *template, topic string) (text []byte, null int, err error) {
	switch {
	case t == nil:
		return nil, -1, nil
	case t.fixed != nil:
		return t.fixed, -1, nil
	}
	r.text = r.text[:0]
	for i, piece := range t.parts {
		r.text = append(r.text, piece.text...)
		switch at := r.plan.column(t.at[i]); {
		case piece.column == "":
		case t.at[i] < 0:
			r.text = append(r.text, topic...)
		default:
			value, err := r.value(at)
			if err != nil || value == nil {
				return nil, at, err
			}
			r.text = append(r.text, value...)
		}
	}
	start := len(r.scratch)
	r.scratch = append(r.scratch, r.text...)
	return since(r.scratch, start), -1, nil
}

// badTemplate is the error of a text that its columns made unfit: told of the last
// of them.
func (r *rowMapper) badTemplate(t *template, reason error) error {
	for i := len(t.at) - 1; i >= 0; i-- {
		if at := r.plan.column(t.at[i]); at >= 0 {
			return r.bad(at, reason)
		}
	}
	return &RowError{Table: r.plan.table.String(), RowID: r.id, Position: r.row.Position, Reason: reason.Error()}
}
