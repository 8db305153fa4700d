package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Rights of the role, as the server would decide.
type Rights struct {
	Role           string
	Superuser      bool
	Replication    bool // the attribute, or what a managed service has in its place
	CreateDatabase bool // CREATE on the database: may make publications
	ReadAllStats   bool
	Database       string
}

// Managed services give no role attributes; theirs have a role to grant. Amazon
// RDS calls it rds_replication.
const rightsQuery = `
SELECT r.rolname, r.rolsuper,
       r.rolreplication OR r.rolsuper
         OR coalesce((SELECT pg_has_role(s.oid, 'USAGE') FROM pg_roles s WHERE s.rolname = 'rds_replication'), false),
       has_database_privilege(current_database(), 'CREATE'),
       pg_has_role('pg_read_all_stats', 'USAGE'), current_database()
FROM pg_roles r WHERE r.rolname = current_user`

// LookupRights reads what the role of the session may do.
func LookupRights(ctx context.Context, conn *pgx.Conn) (Rights, error) {
	var r Rights
	err := conn.QueryRow(ctx, rightsQuery).Scan(&r.Role, &r.Superuser, &r.Replication, &r.CreateDatabase, &r.ReadAllStats, &r.Database)
	if err != nil {
		return Rights{}, fmt.Errorf("look up the role's rights: %w", classify(err))
	}
	return r, nil
}

// missingPublicationRights are the rights that making the publication takes and
// the role has not: each table's ownership, and CREATE on the database.
func (f *facts) missingPublicationRights(spec PublicationSpec) (missing []RightError) {
	if f.rights.Superuser {
		return nil
	}
	spec = f.publishable(spec)
	for i := range f.tables {
		if t := &f.tables[i]; t.Exists && !t.OwnedByUs {
			// To own a table is far more than to publish it: the owner had better
			// make the publication.
			missing = append(missing, RightError{
				What: fmt.Sprintf("the ownership of table %s, which making a publication of it takes (the owner is %s)", spec.Tables[i], t.Owner),
				SQL:  fmt.Sprintf("%s; -- as %s, with CREATE on the database", spec.SQL(), t.Owner),
			})
		}
	}
	if len(missing) == 0 && !f.rights.CreateDatabase {
		missing = append(missing, RightError{
			What: "CREATE on database " + f.rights.Database + ", which making a publication takes",
			SQL:  fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s;", quoteIdentifier(f.rights.Database), quoteIdentifier(f.rights.Role)),
		})
	}
	return missing
}

// alterRole is the statement that gives the session's role an attribute.
func alterRole(ctx context.Context, conn *pgx.Conn, attribute string) string {
	role := "walstream"
	if rights, err := LookupRights(context.WithoutCancel(ctx), conn); err == nil {
		role = rights.Role
	}
	return fmt.Sprintf("ALTER ROLE %s %s;", quoteIdentifier(role), attribute)
}
