/**
 * Orders, the payments and refunds that were told of, and what they move in the ledger. Every
 * change commits with its ledger entry and its line in the audit log, and every method that changes
 * something may be called again: portal/orders/order-rules.ts says what then holds. In the order of all
 * who move credits: the account's row first (ledger-writer.ts), so that those who tell of one order
 * do so one after the other.
 */
import { randomUUID } from 'node:crypto';
import { ofAccount } from '@matting/core/accounts/account-store.ts';
import {
  type Actor,
  insertAuditEntry,
  requireAuthority,
  type ServiceActor,
} from '@matting/core/accounts/audit.ts';
import { CREDITS_PER_JOB } from '@matting/core/ledger/ledger.ts';
import type { PageCursor } from '@matting/core/ledger/ledger-store.ts';
import {
  enterOperatorEntry,
  holdAccount,
  readBalances,
} from '@matting/core/ledger/ledger-writer.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  transact,
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { isAsciiWord, matchesOne, nowPlusMs, throughIndex } from '@matting/database/statements.ts';
import { type RawBuilder, sql } from 'kysely';
import {
  creditsOfRefund,
  DAY_MS,
  grantReferenceOf,
  judgePayment,
  ODD_PAYMENTS_MAX,
  ORDER_VALID_MS,
  ORDERS_A_DAY_MAX,
  ORDERS_PENDING_MAX,
  type Order,
  type OrderState,
  orderReferenceOf,
  orderStateOf,
  type Payment,
  type PaymentOutcome,
  parseOrderReference,
  REFUNDS_MAX,
  refundReferenceOf,
  releaseReferenceOf,
  type StoredOrderState,
} from './order-rules.ts';

export type NewOrder = Pick<Order, 'id' | 'accountId' | 'list' | 'credits' | 'price' | 'currency'>;

/** Drawn one after the other where another order has it: one in millions. */
const REFERENCES_TRIED_MAX = 5;

export type PlaceOutcome =
  | { readonly kind: 'placed' | 'already-placed'; readonly order: Order }
  | { readonly kind: 'too-many-pending' | 'too-many-today' | 'unknown-account' };

export type CancelOutcome =
  | { readonly kind: 'cancelled'; readonly order: Order }
  /** It is neither pending nor cancelled. */
  | { readonly kind: 'not-pending'; readonly order: Order }
  | { readonly kind: 'unknown' };

export interface ToldPayment extends Payment {
  /** Who told: `operator`, or a provider's name. */
  readonly toldBy: string;
}

export type PayOutcome =
  /** `late`: the order had expired or was cancelled. */
  | { readonly kind: 'paid'; readonly order: Order; readonly late: boolean }
  /** It was paid with this payment before. */
  | { readonly kind: 'already-paid'; readonly order: Order }
  /** It was paid with another: this one is owed back. */
  | { readonly kind: 'paid-again'; readonly order: Order }
  | { readonly kind: 'differs'; readonly order: Order; readonly field: 'amount' | 'currency' }
  | { readonly kind: 'unknown' };

export interface ToldRefund {
  /** Where the money is: isMoneyReference. */
  readonly refund: string;
  /** Undefined: all that is left of the price. */
  readonly amount: number | undefined;
  /** Undefined: the order's. */
  readonly currency: string | undefined;
  readonly toldBy: string;
  /** Whether it may come before the payment; otherwise it is refused then. */
  readonly mayWait: boolean;
}

export type RefundOutcome =
  | { readonly kind: 'refunded'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'already-refunded'; readonly order: Order; readonly refund: OrderRefund }
  /** The order is not paid yet: it is done when it is. */
  | { readonly kind: 'waiting'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'not-paid'; readonly order: Order }
  /** `left`: of the price, that no refund has taken. */
  | { readonly kind: 'too-much'; readonly order: Order; readonly left: number }
  | { readonly kind: 'currency-differs' | 'too-many'; readonly order: Order }
  /** The refund was told of before, with another amount. */
  | { readonly kind: 'refund-conflict'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'unknown' };

export type OrderPayment = Awaited<ReturnType<typeof readPayments>>[number];
export type OrderRefund = Awaited<ReturnType<typeof readRefunds>>[number];

/** The states an operator may list by: those of refunds are `paid`. */
export type ListedOrderState = Exclude<OrderState, 'partly-refunded' | 'refunded'>;

export interface OrderFilter {
  readonly accountId?: string | undefined;
  readonly state?: ListedOrderState | undefined;
  /** Behind which order the page begins: its expiresAtMs and id. */
  readonly after?: PageCursor | undefined;
  readonly limit: number;
}

export type OrderStore = ReturnType<typeof createOrderStore>;

export function createOrderStore(database: Database) {
  return {
    /** Idempotent by the order's id. Bounds: ORDERS_PENDING_MAX, ORDERS_A_DAY_MAX. */
    place: (order: NewOrder, actor: Actor) => place(database, order, actor),
    /** Of this account alone; while it is pending. */
    cancel: (accountId: string, orderId: string, by: Actor) =>
      cancel(database, { accountId, orderId, by }),
    /** Grants the order's credits once, where the payment is its price. The order: id or reference. */
    pay: (orderId: string, payment: ToldPayment, actor: ServiceActor) =>
      pay(database, { orderId, payment, actor }),
    /** Takes back what the amount stands for, as far as it is available. Idempotent by `refund`. */
    refund: (orderId: string, told: ToldRefund, actor: ServiceActor) =>
      refund(database, orderId, told, actor),
    /** @param order its id or its reference @param accountId only of this account */
    async find(named: string, accountId?: string): Promise<Order | undefined> {
      const order = await findOrder(database, named);
      return accountId === undefined || order?.accountId === accountId ? order : undefined;
    },
    /** ODD_PAYMENTS_MAX and REFUNDS_MAX bound them. */
    async details(orderId: string) {
      const payments = await query(database, db => readPayments(db, orderId));
      return { payments, refunds: await query(database, db => readRefunds(db, orderId)) };
    },
    /** Of those of the account's orders that have one, by their ids. */
    async references(accountId: string, orderIds: readonly string[]) {
      if (orderIds.length === 0) return new Map<string, string>();
      const rows = await query(database, db =>
        db
          .selectFrom('orders')
          .select(['id', 'account_id', 'reference'])
          .where('id', 'in', orderIds)
          .execute(),
      );
      const own = rows.filter(row => row.account_id === accountId);
      return new Map(own.flatMap(({ id, reference }) => (reference ? [[id, reference]] : [])));
    },
    async list(filter: OrderFilter): Promise<Order[]> {
      const rows = await query(database, db => selectPage(database, db, filter).execute());
      return rows.map(orderOf);
    },
  };
}

const ORDER_COLUMNS = [
  'id',
  'reference',
  'account_id as accountId',
  'price_list as list',
  'credits',
  'price',
  'currency',
  'state as stored',
  'refunded',
  'revoked',
  'unrevoked',
  'created_at as createdAtMs',
  'expires_at as expiresAtMs',
  'paid_at as paidAtMs',
  'paid_by as paidBy',
  'payment',
  'cancelled_at as cancelledAtMs',
] as const;

export async function readOrder(
  database: Database,
  db: Db,
  orderId: string,
): Promise<Order | undefined> {
  const row = await db
    .selectFrom('orders')
    .select(ORDER_COLUMNS)
    .select(() => database.nowMs.as('readAtMs'))
    .where('id', '=', orderId)
    .executeTakeFirst();
  return row && orderOf(row);
}

/** @param named an order's id or its reference */
async function findOrder(database: Database, named: string): Promise<Order | undefined> {
  const reference = parseOrderReference(named);
  if (reference === undefined) {
    if (!isAsciiWord(named)) return undefined;
    return query(database, db => readOrder(database, db, named.toLowerCase()));
  }
  const row = await query(database, db =>
    db
      .selectFrom('orders')
      .select(ORDER_COLUMNS)
      .select(() => database.nowMs.as('readAtMs'))
      .where('reference', '=', reference)
      .executeTakeFirst(),
  );
  return row && orderOf(row);
}

export async function requireOrder(database: Database, tx: Db, orderId: string): Promise<Order> {
  const order = await readOrder(database, tx, orderId);
  // Orders are never removed.
  if (order === undefined) throw new Error(`order ${orderId} has gone`);
  return order;
}

/** @param readAtMs the database's clock, which says whether a pending one has expired */
function orderOf({ readAtMs, ...row }: Omit<Order, 'state'> & { readonly readAtMs: number }) {
  return { ...row, state: orderStateOf(row, readAtMs) };
}

/** All of an order: REFUNDS_MAX bounds them. In the order they were told of. */
export async function readRefunds(db: Db, orderId: string) {
  const rows = await db
    .selectFrom('order_refunds')
    .select(['refund', 'amount', 'credits', 'revoked', 'told_by as toldBy'])
    .select(['created_at as createdAtMs', 'applied_at as appliedAtMs'])
    .where('order_id', '=', orderId)
    .execute();
  return rows.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.refund < b.refund ? -1 : 1));
}

/** All of an order: ODD_PAYMENTS_MAX bounds them. In the order they were told of. */
export async function readPayments(db: Db, orderId: string) {
  const rows = await db
    .selectFrom('order_payments')
    .select(['payment', 'amount', 'currency', 'outcome'])
    .select(['told_by as toldBy', 'received_at as receivedAtMs'])
    .where('order_id', '=', orderId)
    .execute();
  return rows.sort((a, b) => a.receivedAtMs - b.receivedAtMs || (a.payment < b.payment ? -1 : 1));
}

function indexOf({ accountId, state }: OrderFilter): string {
  if (accountId !== undefined) return state ? 'orders_account_state' : 'orders_account';
  return state ? 'orders_state' : 'orders_time';
}

function selectPage(database: Database, db: Db, filter: OrderFilter) {
  const { dialect, nowMs } = database;
  const { accountId, state, after, limit } = filter;
  let page = db
    .selectFrom(throughIndex('orders', indexOf(filter))[dialect])
    .select(ORDER_COLUMNS)
    .select(() => nowMs.as('readAtMs'));
  if (accountId !== undefined) {
    page = page.where(ofAccount(dialect, accountId)).orderBy('account_id', 'desc');
  }
  if (state !== undefined) {
    page = page.where(inState(dialect, storedAs(state))).orderBy('state', 'desc');
    if (state === 'pending') page = page.where('expires_at', '>', nowMs);
    if (state === 'expired') page = page.where('expires_at', '<=', nowMs);
  }
  if (after !== undefined) {
    const { atMs, id } = after;
    page = page
      .where('expires_at', '<=', atMs)
      .where(eb => eb.or([eb('expires_at', '<', atMs), eb('id', '<', id)]));
  }
  return page.orderBy('expires_at', 'desc').orderBy('id', 'desc').limit(limit);
}

/** For the reason of `ofAccount`. */
function inState(dialect: Database['dialect'], state: StoredOrderState): RawBuilder<boolean> {
  const column = sql.ref('state');
  return dialect === 'sqlite'
    ? sql<boolean>`${column} = ${state}`
    : sql<boolean>`(${column} >= ${state} and ${column} <= ${state})`;
}

function storedAs(state: ListedOrderState): StoredOrderState {
  return state === 'expired' ? 'pending' : state;
}

async function place(database: Database, order: NewOrder, by: Actor): Promise<PlaceOutcome> {
  const entryId = randomUUID();
  for (let attempt = 1; ; attempt += 1) {
    const referred = { ...order, reference: orderReferenceOf(order.id, attempt) };
    try {
      return await placeReferred(database, referred, by, entryId);
    } catch (error) {
      const isTaken = databaseErrorKind(error) === 'duplicate';
      if (!isTaken || attempt === REFERENCES_TRIED_MAX) throw error;
    }
  }
}

type ReferredOrder = NewOrder & { readonly reference: string };

function placeReferred(
  database: Database,
  order: ReferredOrder,
  by: Actor,
  entryId: string,
): Promise<PlaceOutcome> {
  const { accountId, id } = order;
  return transact(database, async tx => {
    // It takes the account's row: two at once would both count one order fewer.
    const { log } = await requireAuthority(database, tx, { accountId, actor: by, entryId });
    if ((await readBalances(tx, accountId)) === undefined) return { kind: 'unknown-account' };
    const there = await readOrder(database, tx, id);
    if (there !== undefined) return { kind: 'already-placed', order: there };
    const bound = await boundReached(database, tx, accountId);
    if (bound !== undefined) return { kind: bound };
    await insertOrder(database, tx, order);
    const { list, credits, price, currency } = order;
    await log({
      action: 'order.placed',
      subject: id,
      after: { list, credits, price, currency },
    });
    return { kind: 'placed', order: await requireOrder(database, tx, id) };
  });
}

async function boundReached(
  database: Database,
  tx: Db,
  accountId: string,
): Promise<'too-many-pending' | 'too-many-today' | undefined> {
  // Whatever was placed within a day is still valid: a walk of the account's latest orders.
  const latest = await tx
    .selectFrom('orders')
    .select(['state', 'created_at'])
    .select(() => database.nowMs.as('read_at'))
    .where(ofAccount(database.dialect, accountId))
    .where('expires_at', '>', database.nowMs)
    .execute();
  const pending = latest.filter(({ state }) => state === 'pending').length;
  if (pending >= ORDERS_PENDING_MAX) return 'too-many-pending';
  const today = latest.filter(row => row.created_at > row.read_at - DAY_MS).length;
  return today >= ORDERS_A_DAY_MAX ? 'too-many-today' : undefined;
}

async function insertOrder(database: Database, tx: Db, order: ReferredOrder) {
  await tx
    .insertInto('orders')
    .values({
      id: order.id,
      reference: order.reference,
      account_id: order.accountId,
      price_list: order.list,
      credits: order.credits,
      price: order.price,
      currency: order.currency,
      state: 'pending',
      refunded: 0,
      revoked: 0,
      unrevoked: 0,
      created_at: database.nowMs,
      expires_at: nowPlusMs(database.nowMs, ORDER_VALID_MS),
    })
    .execute();
}

async function cancel(
  database: Database,
  { accountId, orderId, by }: { accountId: string; orderId: string; by: Actor },
): Promise<CancelOutcome> {
  if (!isAsciiWord(orderId)) return { kind: 'unknown' };
  const entryId = randomUUID();
  return transact(database, async tx => {
    const { log } = await requireAuthority(database, tx, { accountId, actor: by, entryId });
    const update = tx
      .updateTable('orders')
      .set({ state: 'cancelled', cancelled_at: database.nowMs })
      .where('id', '=', orderId)
      .where('account_id', '=', accountId)
      .where('state', '=', 'pending')
      .where('expires_at', '>', database.nowMs);
    const changed = await matchesOne(update);
    const order = await readOrder(database, tx, orderId);
    if (order === undefined || order.accountId !== accountId) return { kind: 'unknown' };
    if (!changed)
      return { kind: order.stored === 'cancelled' ? 'cancelled' : 'not-pending', order };
    await log({
      action: 'order.cancelled',
      subject: orderId,
      before: { state: 'pending' },
      after: { state: 'cancelled' },
    });
    return { kind: 'cancelled', order };
  });
}

interface Paying {
  readonly orderId: string;
  readonly payment: ToldPayment;
  readonly actor: ServiceActor;
}

/** Made up once, outside of what is repeated. */
type Repeated = Paying & { readonly auditId: string };

async function pay(database: Database, paying: Paying): Promise<PayOutcome> {
  const known = await findOrder(database, paying.orderId);
  if (known === undefined) return { kind: 'unknown' };
  const repeated = { ...paying, auditId: randomUUID() };
  return transact(database, async tx => {
    await holdAccount(database, tx, known.accountId);
    return judgedPayment(database, tx, await requireOrder(database, tx, known.id), repeated);
  });
}

async function judgedPayment(
  database: Database,
  tx: Db,
  order: Order,
  paying: Repeated,
): Promise<PayOutcome> {
  const { payment } = paying;
  const outcome = judgePayment(order, payment);
  if (outcome === 'differs') {
    const field = payment.currency === order.currency ? 'amount' : 'currency';
    await noteOddPayment(database, tx, order, paying, 'differs');
    return { kind: 'differs', order, field };
  }
  if (outcome === 'again') {
    if (order.payment === payment.payment) return { kind: 'already-paid', order };
    await noteOddPayment(database, tx, order, paying, 'again');
    return { kind: 'paid-again', order };
  }
  await accept(database, tx, order, paying);
  const paid = await requireOrder(database, tx, order.id);
  return { kind: 'paid', order: paid, late: order.state !== 'pending' };
}

async function accept(database: Database, tx: Db, order: Order, paying: Repeated) {
  const { payment, toldBy } = paying.payment;
  const update = tx
    .updateTable('orders')
    .set({ state: 'paid', paid_at: database.nowMs, paid_by: toldBy, payment })
    .where('id', '=', order.id)
    .where('state', '=', order.stored);
  // It was cancelled meanwhile, for which no account's row is needed.
  if (!(await matchesOne(update))) throw new OvertakenError('the order has changed');
  const { kind } = await enterOperatorEntry(database, tx, {
    kind: 'grant',
    accountId: order.accountId,
    amount: order.credits,
    reference: grantReferenceOf(order.id),
  });
  if (kind !== 'entered')
    throw new Error(`the grant of order ${order.id} was not entered: ${kind}`);
  await writePayment(database, tx, order, paying, 'accepted');
  await auditPayment(database, tx, order, paying, 'order.paid');
  await applyWaitingRefunds(database, tx, order.id, paying.actor);
}

/** Once each, and no more than are kept. */
async function noteOddPayment(
  database: Database,
  tx: Db,
  order: Order,
  paying: Repeated,
  outcome: 'again' | 'differs',
): Promise<void> {
  const told = await readPayments(tx, order.id);
  const same = told.find(({ payment }) => payment === paying.payment.payment);
  // An accepted one stays accepted, whatever is told of it later.
  if (same?.outcome === outcome || same?.outcome === 'accepted') return;
  if (same === undefined && told.length > ODD_PAYMENTS_MAX) return;
  await writePayment(database, tx, order, paying, outcome);
  const action = outcome === 'again' ? 'order.paid_again' : 'order.payment_differs';
  await auditPayment(database, tx, order, paying, action);
}

/** One that differed before may have been corrected since. */
async function writePayment(
  database: Database,
  tx: Db,
  order: Order,
  { payment: { payment, amount, currency, toldBy } }: Repeated,
  outcome: PaymentOutcome,
): Promise<void> {
  const row = { amount, currency, outcome, told_by: toldBy, received_at: database.nowMs };
  const update = tx
    .updateTable('order_payments')
    .set(row)
    .where('order_id', '=', order.id)
    .where('payment', '=', payment);
  if (await matchesOne(update)) return;
  await tx
    .insertInto('order_payments')
    .values({ ...row, order_id: order.id, payment })
    .execute();
}

async function auditPayment(
  database: Database,
  tx: Db,
  order: Order,
  { auditId, actor, payment: { payment, amount, currency } }: Repeated,
  action: string,
): Promise<void> {
  const isPaid = action === 'order.paid';
  await insertAuditEntry(database, tx, {
    id: auditId,
    accountId: order.accountId,
    actor,
    action,
    subject: order.id,
    before: { state: order.state },
    after: {
      state: isPaid ? 'paid' : order.state,
      payment,
      amount,
      currency,
      credits: isPaid ? order.credits : 0,
    },
  });
}

interface By {
  readonly actor: ServiceActor;
  readonly auditId: string;
}

/**
 * What the amount stands for goes back as far as it is available: never what open jobs hold, never
 * below nothing. The rest is said on the order, and what the jobs that were open then give back
 * later goes the same way (takeReleased).
 */
async function refund(
  database: Database,
  orderId: string,
  told: ToldRefund,
  actor: ServiceActor,
): Promise<RefundOutcome> {
  const known = await findOrder(database, orderId);
  if (known === undefined) return { kind: 'unknown' };
  const by = { actor, auditId: randomUUID() };
  return transact(database, async tx => {
    await holdAccount(database, tx, known.accountId);
    return judgedRefund(database, tx, await requireOrder(database, tx, known.id), told, by);
  });
}

async function judgedRefund(
  database: Database,
  tx: Db,
  order: Order,
  told: ToldRefund,
  by: By,
): Promise<RefundOutcome> {
  if (told.currency !== undefined && told.currency !== order.currency) {
    return { kind: 'currency-differs', order };
  }
  const refunds = await readRefunds(tx, order.id);
  const same = refunds.find(({ refund }) => refund === told.refund);
  if (same !== undefined) return toldBefore(order, same, told.amount);
  // Those that wait have a claim too.
  const left = order.price - refunds.reduce((sum, { amount }) => sum + amount, 0);
  const amount = told.amount ?? left;
  const isPaid = order.stored === 'paid';
  if (!isPaid && !told.mayWait) return { kind: 'not-paid', order };
  if (amount > left || left === 0) return { kind: 'too-much', order, left };
  if (refunds.length >= REFUNDS_MAX) return { kind: 'too-many', order };
  await insertRefund(database, tx, order, { ...told, amount });
  if (isPaid) await applyRefund(database, tx, order, told.refund, amount, by);
  else await auditRefund(database, tx, order, by, 'order.refund_waits', { amount });
  const changed = await requireOrder(database, tx, order.id);
  const refund = (await readRefunds(tx, order.id)).find(one => one.refund === told.refund);
  if (refund === undefined) throw new Error(`a refund of order ${order.id} has gone`);
  return { kind: isPaid ? 'refunded' : 'waiting', order: changed, refund };
}

function toldBefore(order: Order, refund: OrderRefund, amount: number | undefined): RefundOutcome {
  const differs = amount !== undefined && amount !== refund.amount;
  if (differs) return { kind: 'refund-conflict', order, refund };
  return { kind: refund.appliedAtMs === null ? 'waiting' : 'already-refunded', order, refund };
}

/** In the transaction that makes the order paid. */
async function applyWaitingRefunds(
  database: Database,
  tx: Db,
  orderId: string,
  actor: ServiceActor,
): Promise<void> {
  const refunds = await readRefunds(tx, orderId);
  for (const { refund, amount, appliedAtMs } of refunds) {
    if (appliedAtMs !== null) continue;
    const order = await requireOrder(database, tx, orderId);
    // It need not be the same when this is repeated: it is gone then, or the order is paid.
    const by = { actor, auditId: randomUUID() };
    await applyRefund(database, tx, order, refund, amount, by);
  }
}

/** The order is paid, and its refund's row waits. */
async function applyRefund(
  database: Database,
  tx: Db,
  order: Order,
  refund: string,
  amount: number,
  by: By,
): Promise<void> {
  const balances = await holdAccount(database, tx, order.accountId);
  const credits = creditsOfRefund(order, amount);
  const revoked = Math.min(credits, balances?.available ?? 0);
  const left = revoked < credits ? { unrevoked_at: database.nowMs } : {};
  const update = tx
    .updateTable('orders')
    .set(eb => ({
      refunded: eb('refunded', '+', amount),
      revoked: eb('revoked', '+', revoked),
      unrevoked: eb('unrevoked', '+', credits - revoked),
      ...left,
    }))
    .where('id', '=', order.id)
    .where('refunded', '=', order.refunded);
  if (!(await matchesOne(update))) throw new OvertakenError('the order has changed');
  await tx
    .updateTable('order_refunds')
    .set({ credits, revoked, applied_at: database.nowMs })
    .where('order_id', '=', order.id)
    .where('refund', '=', refund)
    .execute();
  // An entry of nothing there is not: less than a credit, or all were spent.
  if (revoked > 0) {
    const { kind } = await enterOperatorEntry(database, tx, {
      kind: 'revoke',
      accountId: order.accountId,
      amount: revoked,
      reference: refundReferenceOf(order.id, refund),
    });
    if (kind !== 'entered') throw new OvertakenError(`the revocation was not entered: ${kind}`);
  }
  await auditRefund(database, tx, order, by, 'order.refunded', {
    refund,
    amount,
    credits,
    revoked,
  });
}

/**
 * What a job gives back that was open at a refund goes to that refund, where it lacks something: in
 * the transaction that releases the job's credit, behind its entry, or later
 * (settled-steps.ts): what was spent by then is not taken, and the refund goes on lacking it. A
 * job that was submitted after the refund holds nothing of it.
 */
export async function takeReleased(
  database: Database,
  tx: Db,
  { accountId, jobId, createdAtMs }: { accountId: string; jobId: string; createdAtMs: number },
): Promise<void> {
  const order = await tx
    .selectFrom('orders')
    .select(['id', 'unrevoked'])
    .where('account_id', '=', accountId)
    .where('unrevoked_at', '>=', createdAtMs)
    .orderBy('unrevoked_at')
    .orderBy('id')
    .limit(1)
    .executeTakeFirst();
  if (order === undefined) return;
  const { kind } = await enterOperatorEntry(database, tx, {
    kind: 'revoke',
    accountId,
    amount: CREDITS_PER_JOB,
    reference: releaseReferenceOf(order.id, jobId),
  });
  if (kind === 'insufficient-credits') return;
  if (kind !== 'entered') throw new Error(`what job ${jobId} gave back was not taken: ${kind}`);
  const unrevoked = order.unrevoked - CREDITS_PER_JOB;
  const update = tx
    .updateTable('orders')
    .set(eb => ({
      revoked: eb('revoked', '+', CREDITS_PER_JOB),
      unrevoked,
      ...(unrevoked === 0 ? { unrevoked_at: null } : {}),
    }))
    .where('id', '=', order.id)
    .where('unrevoked', '=', order.unrevoked);
  if (!(await matchesOne(update))) throw new OvertakenError('the order has changed');
}

async function insertRefund(
  database: Database,
  tx: Db,
  order: Order,
  { refund, amount, toldBy }: Pick<ToldRefund, 'refund' | 'toldBy'> & { amount: number },
): Promise<void> {
  await tx
    .insertInto('order_refunds')
    .values({
      order_id: order.id,
      refund,
      amount,
      credits: 0,
      revoked: 0,
      told_by: toldBy,
      created_at: database.nowMs,
    })
    .execute();
}

async function auditRefund(
  database: Database,
  tx: Db,
  order: Order,
  { actor, auditId }: By,
  action: string,
  after: Readonly<Record<string, string | number>>,
): Promise<void> {
  const { id, accountId, state, refunded } = order;
  await insertAuditEntry(database, tx, {
    id: auditId,
    accountId,
    actor,
    action,
    subject: id,
    before: { state, refunded },
    after,
  });
}
