/** In addition to test/support/large-tables.ts: people, orders and days of usage. */
import { createHash } from 'node:crypto';
import type { Database, Schema } from '@matting/database/database.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { ACCOUNTS, accountOf, apiKeyOf, fillTable } from '@matting/test-support/large-tables.ts';
import type { Insertable } from 'kysely';
import { orderReferenceOf } from '../orders/order-rules.ts';

/** A few fewer than allowed, so that more can join. */
const PEOPLE = 150;
const OTHERS = 2000;
const LINKS = 2000;

export const personOf = (index: number) =>
  `00000000-0000-4000-b000-${index.toString(16).padStart(12, '0')}`;
export const personMailOf = (index: number) => `person-${index}@large.example`;
export const sessionHashOf = (index: number) => hashOf(`session ${index}`);

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

export async function fillLargePeople(database: Database): Promise<void> {
  const nowMs = Date.now();
  const people = Array.from({ length: PEOPLE + OTHERS }, (_, index) => index);
  await fillTable(database, 'users', people.map(userRow));
  await fillTable(database, 'members', people.map(memberRow));
  await fillTable(
    database,
    'sessions',
    people.map(index => sessionRow(index, nowMs)),
  );
  const links = Array.from({ length: LINKS }, (_, index) => linkRow(index, nowMs));
  await fillTable(database, 'one_time_links', links);
}

function userRow(index: number): Insertable<Schema['users']> {
  const mail = personMailOf(index);
  return {
    id: personOf(index),
    mail,
    mail_key: mail,
    password_hash: 'a hash',
    language: null,
    created_at: 1,
    disabled_at: null,
    proven_at: 1,
  };
}

function memberRow(index: number): Schema['members'] {
  return {
    account_id: index < PEOPLE ? accountOf(0) : accountOf(1 + (index % 19)),
    user_id: personOf(index),
    role: index % 3 === 0 ? 'owner' : 'member',
    source: 'invited',
    created_at: 1,
  };
}

function sessionRow(index: number, nowMs: number): Schema['sessions'] {
  return {
    id: `session-${index}`,
    id_hash: sessionHashOf(index),
    user_id: personOf(index),
    account_id: memberRow(index).account_id,
    method: 'password',
    created_at: nowMs - DAY_MS,
    seen_at: nowMs - 120_000,
    expires_at: nowMs + DAY_MS,
    address: '192.0.2.1',
    agent: 'a browser',
  };
}

/** The last few are open invitations. */
function linkRow(index: number, nowMs: number): Insertable<Schema['one_time_links']> {
  const isOpen = index >= LINKS - 20;
  return {
    id: `link-${index}`,
    token_hash: hashOf(`link ${index}`),
    purpose: 'invitation',
    account_id: accountOf(index % 2 === 0 ? 0 : 1),
    mail: `guest-${index}@large.example`,
    role: 'viewer',
    created_by: 'operator',
    created_at: nowMs - (LINKS - index) * 1000,
    expires_at: nowMs + DAY_MS,
    used_at: isOpen ? null : nowMs - 1000,
    proves_mail: 0,
  };
}

const ORDERS = 3000;
const VALID_MS = 7 * DAY_MS;
const STEP_MS = (365 * DAY_MS) / ORDERS;
const REFUNDED_OF = 50;
const REFUND = { amount: 100, credits: 50, revoked: 50 };

export const orderOf = (index: number) =>
  `00000000-0000-4000-d000-${index.toString(16).padStart(12, '0')}`;

export async function fillLargeOrders(database: Database): Promise<void> {
  const nowMs = Date.now();
  const orders = Array.from({ length: ORDERS }, (_, index) => orderRow(index, nowMs));
  await fillTable(database, 'orders', orders);
  const paid = orders.filter(({ state }) => state === 'paid');
  await fillTable(database, 'order_payments', paid.map(paymentRow));
  await fillTable(
    database,
    'order_refunds',
    orders.filter(({ refunded }) => refunded > 0).map(refundRow),
  );
}

/** The last is the latest. Of a hundred 60 are paid, 20 are cancelled, 20 have expired. */
function orderRow(index: number, nowMs: number): Schema['orders'] {
  const createdAtMs = Math.floor(nowMs - (ORDERS - index) * STEP_MS);
  const share = (index * 37) % 100;
  const state = share < 60 ? 'paid' : share < 80 ? 'cancelled' : 'pending';
  const isPaid = state === 'paid';
  const isRefunded = isPaid && index % REFUNDED_OF === 0;
  return {
    id: orderOf(index),
    account_id: accountOf(index % 2 === 0 ? 0 : 1 + (index % 19)),
    price_list: 'credit',
    credits: 2500,
    price: 5000,
    currency: 'CNY',
    state,
    refunded: isRefunded ? REFUND.amount : 0,
    revoked: isRefunded ? REFUND.revoked : 0,
    unrevoked: 0,
    unrevoked_at: null,
    created_at: createdAtMs,
    expires_at: createdAtMs + VALID_MS,
    paid_at: isPaid ? createdAtMs + 1000 : null,
    paid_by: isPaid ? 'operator' : null,
    payment: isPaid ? `payment-${index}` : null,
    cancelled_at: state === 'cancelled' ? createdAtMs + 1000 : null,
    reference: orderReferenceOf(orderOf(index), 1),
  };
}

function paymentRow(order: Schema['orders']): Schema['order_payments'] {
  return {
    order_id: order.id,
    payment: order.payment ?? '',
    amount: order.price,
    currency: order.currency,
    outcome: 'accepted',
    told_by: 'operator',
    received_at: order.created_at + 1000,
  };
}

function refundRow(order: Schema['orders']): Schema['order_refunds'] {
  return {
    order_id: order.id,
    refund: 'refund',
    ...REFUND,
    told_by: 'operator',
    created_at: order.created_at + DAY_MS,
    applied_at: order.created_at + DAY_MS,
  };
}

const USED_DAYS = 730;

export async function fillLargeUsage(database: Database): Promise<void> {
  const today = Math.floor(Date.now() / DAY_MS);
  const rows = Array.from({ length: ACCOUNTS * USED_DAYS }, (_, index) => ({
    account_id: accountOf(index % ACCOUNTS),
    day: today - Math.floor(index / ACCOUNTS),
    api_key_id: apiKeyOf(0),
    outcome: 'succeeded' as const,
    format: 'png',
    images: 10,
    credits: 10,
  }));
  await fillTable(database, 'usage_days', rows);
}
