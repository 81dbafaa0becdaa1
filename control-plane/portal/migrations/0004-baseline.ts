/** The portal's tables (../tables.ts). Those that the core's baseline made once stay. */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import {
  ascii,
  BYTES,
  COUNT_FROM_0,
  createIndex,
  createTables,
  HASH,
  ID,
  INTEGER,
  type TableDefinition,
  text,
} from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function baseline(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTables(db, dialect, TABLES);
      // Orders of earlier versions have no reference, and SQLite adds no column that is unique.
      const isUnique = true;
      await createIndex(db, dialect, 'orders_reference', 'orders', ['reference'], { isUnique });
    },
  };
}

const ROLE = `role in ('owner', 'member', 'viewer')`;

const TABLES: readonly TableDefinition[] = [
  {
    name: 'usage_days',
    columns: {
      account_id: ID,
      day: INTEGER,
      api_key_id: ID,
      outcome: ascii(16),
      format: ascii(8),
      images: INTEGER,
      credits: INTEGER,
    },
    primaryKey: ['account_id', 'day', 'api_key_id', 'outcome', 'format'],
    checks: { usage_days_counts: 'images > 0 and credits >= 0' },
    indexes: { usage_days_day: ['day'] },
  },
  {
    name: 'playgrounds',
    columns: { account_id: ID, api_key_id: ID, day_at: INTEGER, used: INTEGER },
    primaryKey: ['account_id'],
    unique: { playgrounds_api_key: ['api_key_id'] },
    checks: { playgrounds_used: 'used >= 0 and day_at >= 0' },
  },
  {
    name: 'orders',
    columns: {
      id: ID,
      account_id: ID,
      price_list: ascii(8),
      credits: INTEGER,
      price: INTEGER,
      currency: ascii(3),
      state: ascii(16),
      refunded: INTEGER,
      revoked: INTEGER,
      unrevoked: INTEGER,
      created_at: INTEGER,
      expires_at: INTEGER,
    },
    nullable: {
      unrevoked_at: INTEGER,
      paid_at: INTEGER,
      paid_by: ascii(16),
      payment: ascii(64),
      cancelled_at: INTEGER,
      reference: ascii(16),
    },
    primaryKey: ['id'],
    checks: {
      orders_state: `state in ('pending', 'cancelled', 'paid')`,
      orders_sums: `credits > 0 and price > 0 and refunded >= 0 and refunded <= price
          and revoked >= 0 and unrevoked >= 0 and revoked + unrevoked <= credits`,
      orders_paid: `(state = 'paid') = (paid_at is not null)
          and (paid_at is null) = (paid_by is null) and (paid_at is null) = (payment is null)
          and (state = 'paid' or refunded = 0)`,
    },
    indexes: {
      orders_time: ['expires_at', 'id'],
      orders_state: ['state', 'expires_at', 'id'],
      orders_account: ['account_id', 'expires_at', 'id'],
      orders_account_state: ['account_id', 'state', 'expires_at', 'id'],
      orders_account_unrevoked: ['account_id', 'unrevoked_at', 'id'],
    },
  },
  {
    name: 'order_payments',
    columns: {
      order_id: ID,
      payment: ascii(64),
      amount: INTEGER,
      currency: ascii(3),
      outcome: ascii(16),
      told_by: ascii(16),
      received_at: INTEGER,
    },
    primaryKey: ['order_id', 'payment'],
    checks: {
      order_payments_outcome: `amount > 0 and outcome in ('accepted', 'again', 'differs')`,
    },
  },
  {
    name: 'order_refunds',
    columns: {
      order_id: ID,
      refund: ascii(64),
      amount: INTEGER,
      credits: INTEGER,
      revoked: INTEGER,
      told_by: ascii(16),
      created_at: INTEGER,
    },
    nullable: { applied_at: INTEGER },
    primaryKey: ['order_id', 'refund'],
    checks: {
      order_refunds_sums: `amount > 0 and credits >= 0 and revoked >= 0 and revoked <= credits
          and (applied_at is not null or credits = 0)`,
    },
  },
  {
    name: 'users',
    columns: { id: ID, mail: text(254), turns: COUNT_FROM_0, created_at: INTEGER },
    nullable: {
      mail_key: text(254),
      password_hash: ascii(255),
      language: ascii(16),
      disabled_at: INTEGER,
      proven_at: INTEGER,
    },
    primaryKey: ['id'],
    unique: { users_mail_key: ['mail_key'] },
    checks: { users_password: 'password_hash is null or mail_key is not null' },
  },
  {
    name: 'identities',
    columns: { issuer: ascii(255), subject: ascii(255), user_id: ID, created_at: INTEGER },
    primaryKey: ['issuer', 'subject'],
    indexes: { identities_user: ['user_id'] },
  },
  {
    name: 'members',
    columns: {
      account_id: ID,
      user_id: ID,
      role: ascii(16),
      source: ascii(16),
      created_at: INTEGER,
    },
    primaryKey: ['account_id', 'user_id'],
    checks: { members_role: ROLE, members_source: `source in ('invited', 'oidc', 'operator')` },
    indexes: { members_user: ['user_id', 'account_id'] },
  },
  {
    name: 'one_time_links',
    columns: {
      id: ID,
      token_hash: HASH,
      purpose: ascii(16),
      account_id: ID,
      mail: text(254),
      role: ascii(16),
      created_by: text(254),
      created_at: INTEGER,
      expires_at: INTEGER,
      proves_mail: INTEGER,
    },
    nullable: { used_at: INTEGER, made_by: ID },
    primaryKey: ['id'],
    unique: { one_time_links_token: ['token_hash'] },
    checks: {
      one_time_links_purpose: `purpose in ('invitation', 'sign-in')`,
      one_time_links_role: ROLE,
    },
    indexes: {
      one_time_links_account: ['account_id', 'created_at', 'id'],
      one_time_links_expiry: ['expires_at'],
    },
  },
  {
    name: 'sessions',
    columns: {
      id: ID,
      id_hash: HASH,
      user_id: ID,
      account_id: ID,
      method: ascii(16),
      created_at: INTEGER,
      seen_at: INTEGER,
      expires_at: INTEGER,
      address: ascii(64),
      agent: text(255),
    },
    primaryKey: ['id_hash'],
    unique: { sessions_id: ['id'] },
    checks: { sessions_method: `method in ('password', 'oidc', 'link')` },
    indexes: { sessions_user: ['user_id', 'created_at', 'id'], sessions_expiry: ['expires_at'] },
  },
  {
    name: 'sign_in_throttles',
    columns: { key_hash: HASH, window_start: INTEGER, failures: INTEGER },
    primaryKey: ['key_hash'],
    checks: { sign_in_throttles_failures: 'failures >= 0' },
    indexes: { sign_in_throttles_window: ['window_start'] },
  },
  {
    name: 'balance_alerts',
    columns: { account_id: ID, threshold: INTEGER, created_at: INTEGER },
    nullable: { told_at: INTEGER, told_credits: INTEGER, told_event: ID },
    primaryKey: ['account_id', 'threshold'],
    checks: {
      balance_alerts_threshold: 'threshold >= 0',
      balance_alerts_told: `(told_at is null) = (told_credits is null)
          and (told_at is null) = (told_event is null)`,
    },
  },
  {
    name: 'key_expiry_notices',
    columns: { id: ID, api_key_id: ID, expires_at: INTEGER },
    primaryKey: ['id'],
    unique: { key_expiry_notices_once: ['api_key_id', 'expires_at'] },
    indexes: { key_expiry_notices_expiry: ['expires_at'] },
  },
  {
    name: 'account_webhooks',
    columns: {
      account_id: ID,
      url: text(2048),
      secret: BYTES,
      secret_key_id: ascii(64),
      created_at: INTEGER,
    },
    nullable: { test_event: ID },
    primaryKey: ['account_id'],
    indexes: { account_webhooks_key: ['secret_key_id', 'account_id'] },
  },
  {
    name: 'message_counts',
    columns: { key_hash: HASH, day_at: INTEGER, used: INTEGER, withheld: INTEGER },
    nullable: { tested_at: INTEGER },
    primaryKey: ['key_hash'],
    checks: { message_counts_used: 'used >= 0 and withheld >= 0' },
    indexes: { message_counts_day: ['day_at'] },
  },
];
