/**
 * Orders of credit packages with what was told about their payments and refunds, and the order in
 * which an account's ledger entries of one kind are read. Control planes from before it see none of
 * the tables: their grants and revocations are entries like any other.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { type ColumnTypes, columnTypes, createIndex, createTable } from './ddl.ts';

/** Lists are read in the order of these columns; expires_at grows with created_at. */
const ORDER_INDEXES: Readonly<Record<string, readonly string[]>> = {
  orders_time: ['expires_at', 'id'],
  orders_state: ['state', 'expires_at', 'id'],
  orders_account: ['account_id', 'expires_at', 'id'],
  orders_account_state: ['account_id', 'state', 'expires_at', 'id'],
};

export function ordersMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await createOrders(db, dialect, t);
      await createOrderPayments(db, dialect, t);
      await createOrderRefunds(db, dialect, t);
      for (const [name, columns] of Object.entries(ORDER_INDEXES)) {
        await createIndex(db, dialect, name, 'orders', columns);
      }
      await createIndex(db, dialect, 'ledger_entries_account_kind', 'ledger_entries', [
        'account_id',
        'kind',
        'created_at',
        'id',
      ]);
    },
  };
}

async function createOrders(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'orders',
    columns: {
      id: t.id,
      account_id: t.id,
      price_list: t.ascii(8),
      credits: t.integer,
      price: t.integer,
      currency: t.ascii(3),
      state: t.ascii(16),
      refunded: t.integer,
      revoked: t.integer,
      unrevoked: t.integer,
      created_at: t.integer,
      expires_at: t.integer,
    },
    nullable: {
      paid_at: t.integer,
      paid_by: t.ascii(16),
      payment: t.ascii(64),
      cancelled_at: t.integer,
    },
    primaryKey: 'id',
    checks: {
      orders_state: `state in ('pending', 'cancelled', 'paid')`,
      orders_sums: `credits > 0 and price > 0 and refunded >= 0 and refunded <= price
        and revoked >= 0 and unrevoked >= 0 and revoked + unrevoked <= credits`,
      orders_paid: `(state = 'paid') = (paid_at is not null)
        and (paid_at is null) = (paid_by is null) and (paid_at is null) = (payment is null)
        and (state = 'paid' or refunded = 0)`,
    },
  });
}

async function createOrderPayments(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'order_payments',
    columns: {
      order_id: t.id,
      payment: t.ascii(64),
      amount: t.integer,
      currency: t.ascii(3),
      outcome: t.ascii(16),
      told_by: t.ascii(16),
      received_at: t.integer,
    },
    primaryKey: ['order_id', 'payment'],
    checks: {
      order_payments_outcome: `amount > 0 and outcome in ('accepted', 'again', 'differs')`,
    },
  });
}

async function createOrderRefunds(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'order_refunds',
    columns: {
      order_id: t.id,
      refund: t.ascii(64),
      amount: t.integer,
      credits: t.integer,
      revoked: t.integer,
      told_by: t.ascii(16),
      created_at: t.integer,
    },
    nullable: { applied_at: t.integer },
    primaryKey: ['order_id', 'refund'],
    checks: {
      order_refunds_sums: `amount > 0 and credits >= 0 and revoked >= 0 and revoked <= credits
        and (applied_at is not null or credits = 0)`,
    },
  });
}
