/**
 * People of accounts: who they are, what they may, how they sign in, and the log of what was
 * changed. Control planes from before these tables know nothing of them.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { type ColumnTypes, columnTypes, createIndex, createTable } from './ddl.ts';

const ROLE = `role in ('owner', 'member', 'viewer')`;

export function peopleMigration(dialect: DatabaseDialect): Migration {
  const types = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await createUsers(db, dialect, types);
      await createMembers(db, dialect, types);
      await createLinks(db, dialect, types);
      await createSessions(db, dialect, types);
      await createThrottles(db, dialect, types);
      await createAuditEntries(db, dialect, types);
    },
  };
}

async function createUsers(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'users',
    columns: { id: t.id, mail: t.text(254), created_at: t.integer },
    nullable: {
      mail_key: t.text(254),
      password_hash: t.ascii(255),
      language: t.ascii(16),
      disabled_at: t.integer,
    },
    primaryKey: 'id',
    unique: { users_mail_key: ['mail_key'] },
    checks: { users_password: 'password_hash is null or mail_key is not null' },
  });
  await createTable(db, dialect, {
    name: 'identities',
    columns: { issuer: t.ascii(255), subject: t.ascii(255), user_id: t.id, created_at: t.integer },
    primaryKey: ['issuer', 'subject'],
  });
  await createIndex(db, dialect, 'identities_user', 'identities', ['user_id']);
}

async function createMembers(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'members',
    columns: {
      account_id: t.id,
      user_id: t.id,
      role: t.ascii(16),
      source: t.ascii(16),
      created_at: t.integer,
    },
    primaryKey: ['account_id', 'user_id'],
    checks: {
      members_role: ROLE,
      members_source: `source in ('invited', 'oidc', 'operator')`,
    },
  });
  await createIndex(db, dialect, 'members_user', 'members', ['user_id', 'account_id']);
}

async function createLinks(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'one_time_links',
    columns: {
      id: t.id,
      token_hash: t.hash,
      purpose: t.ascii(16),
      account_id: t.id,
      mail: t.text(254),
      role: t.ascii(16),
      created_by: t.text(254),
      created_at: t.integer,
      expires_at: t.integer,
    },
    nullable: { used_at: t.integer },
    primaryKey: 'id',
    unique: { one_time_links_token: ['token_hash'] },
    checks: {
      one_time_links_purpose: `purpose in ('invitation', 'sign-in')`,
      one_time_links_role: ROLE,
    },
  });
  await createIndex(db, dialect, 'one_time_links_account', 'one_time_links', [
    'account_id',
    'created_at',
    'id',
  ]);
  await createIndex(db, dialect, 'one_time_links_expiry', 'one_time_links', ['expires_at']);
}

async function createSessions(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'sessions',
    columns: {
      id: t.id,
      id_hash: t.hash,
      user_id: t.id,
      account_id: t.id,
      method: t.ascii(16),
      created_at: t.integer,
      seen_at: t.integer,
      expires_at: t.integer,
      address: t.ascii(64),
      agent: t.text(255),
    },
    primaryKey: 'id_hash',
    unique: { sessions_id: ['id'] },
    checks: { sessions_method: `method in ('password', 'oidc', 'link')` },
  });
  await createIndex(db, dialect, 'sessions_user', 'sessions', ['user_id', 'created_at', 'id']);
  await createIndex(db, dialect, 'sessions_expiry', 'sessions', ['expires_at']);
}

async function createThrottles(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'sign_in_throttles',
    columns: { key_hash: t.hash, window_start: t.integer, failures: t.integer },
    primaryKey: 'key_hash',
    checks: { sign_in_throttles_failures: 'failures >= 0' },
  });
  await createIndex(db, dialect, 'sign_in_throttles_window', 'sign_in_throttles', ['window_start']);
}

async function createAuditEntries(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'audit_entries',
    columns: {
      id: t.id,
      account_id: t.id,
      created_at: t.integer,
      actor_kind: t.ascii(16),
      action: t.ascii(64),
      subject: t.text(254),
    },
    nullable: {
      actor_user_id: t.id,
      actor_mail: t.text(254),
      address: t.ascii(64),
      value_before: t.longText,
      value_after: t.longText,
    },
    primaryKey: 'id',
    checks: {
      audit_entries_actor: `actor_kind in ('person', 'operator', 'payment', 'system')
        and (actor_kind = 'person') = (actor_user_id is not null)`,
    },
  });
  await createIndex(db, dialect, 'audit_entries_account', 'audit_entries', [
    'account_id',
    'created_at',
    'id',
  ]);
  await createIndex(db, dialect, 'audit_entries_age', 'audit_entries', ['created_at']);
}
