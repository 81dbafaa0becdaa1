import { createHash } from 'node:crypto';
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, html } from '../page/html.ts';
import { cursorOf, cursorText, type PageCursor, pageOf } from '../page/paging.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { PageError, type Visit, visitOf } from '../session/visit.ts';
import { type Formats, fill, type Words } from '../words/words.ts';
import {
  formatDecimal,
  type ListOnSale,
  type Order,
  type OrderState,
  PRICE_LISTS,
  type PriceList,
  smallestUnits,
} from './order-rules.ts';
import type { OrderStore } from './order-store.ts';

const ORDERS_PAGE_ROWS = 50;

export type PackageOnSale = ReturnType<typeof packagesOf>[number];

interface OrderedPackage {
  /** A random UUID of the form. Sent twice, it makes one order. */
  readonly form: string;
  readonly credits: number;
  /** The price that the buyer saw. At another price the order is refused. */
  readonly price: number;
}

export class Orders {
  readonly #orders: OrderStore;
  readonly instructions: string | undefined;
  readonly packages: readonly PackageOnSale[];

  constructor(orders: OrderStore, onSale: ListOnSale, instructions: string | undefined) {
    this.#orders = orders;
    this.instructions = instructions;
    this.packages = PRICE_LISTS.filter(({ unit }) => unit === onSale).flatMap(packagesOf);
  }

  onSale({ credits, price }: Pick<OrderedPackage, 'credits' | 'price'>) {
    return this.packages.find(one => one.credits === credits && one.price === price);
  }

  async place(accountId: string, { form, credits, price }: OrderedPackage, actor: Actor) {
    const sold = this.onSale({ credits, price });
    if (sold === undefined) return { kind: 'not-on-sale' } as const;
    const { list, currency } = sold;
    const order = { accountId, list, credits, price, currency };
    const id = orderIdOf([accountId, form, list, String(credits), String(price)]);
    return this.#orders.place({ ...order, id }, actor);
  }

  async list(accountId: string, after: PageCursor | undefined) {
    const found = await this.#orders.list({ accountId, after, limit: ORDERS_PAGE_ROWS + 1 });
    const { rows: orders, last } = pageOf(found, ORDERS_PAGE_ROWS);
    const next = last && cursorText({ atMs: last.expiresAtMs, id: last.id });
    return { orders, next };
  }

  references(accountId: string, orderIds: readonly string[]) {
    return this.#orders.references(accountId, orderIds);
  }

  async show(accountId: string, orderId: string) {
    const order = await this.#orders.find(orderId, accountId);
    return order && { order, ...(await this.#orders.details(orderId)) };
  }

  cancel(accountId: string, orderId: string, actor: Actor) {
    return this.#orders.cancel(accountId, orderId, actor);
  }
}

function packagesOf({ unit, currency, packages }: PriceList) {
  return packages.map(({ credits, price, unitPrice }) => ({
    list: unit,
    credits,
    price: smallestUnits(price, currency),
    currency,
    unitPrice,
  }));
}

/** A UUID (version 8) made from account and form, so that nobody else can choose it. */
function orderIdOf(parts: readonly string[]): string {
  const hex = createHash('sha256').update(parts.join('\n')).digest('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}

const CREDITS_PATH = `${ACCOUNT_PATH}/credits`;
export const ORDERS_PATH = `${ACCOUNT_PATH}/orders`;
export const PACKAGES_PATH = `${ORDERS_PATH}/packages`;
const READ = { config: { permission: 'credits.read' } } as const;
export const MANAGE_ORDERS = { config: { permission: 'orders.manage' } } as const;

type Refusal = keyof Words['orders']['refused'];
type OrderRequest = FastifyRequest<{ Params: { id: string } }>;
type ShownOrder = NonNullable<Awaited<ReturnType<Orders['show']>>>;

export function registerOrderRoutes(account: FastifyInstance, orders: Orders): void {
  account.get('/orders', READ, async (request, reply) => {
    const visit = visitOf(request);
    const after = cursorOf(request);
    const { orders: rows, next } = await orders.list(visit.accountId, after);
    const { words } = visit;
    return renderPage(reply, {
      title: words.orders.title,
      lead: words.orders.lead,
      active: 'credits',
      notices: words.orders.notices,
      main: html`<div>
        ${creditsTabs(visit, orders, 'orders')}
        ${orderTable(visit, rows, orders)}
        ${ui.pager(words.common, ORDERS_PATH, { after, next })}
      </div>`,
    });
  });
  account.get('/orders/:id', READ, (request: OrderRequest, reply) =>
    renderOrder(request, reply, orders),
  );
  account.post('/orders/:id/cancel', MANAGE_ORDERS, async (request: OrderRequest, reply) => {
    const { accountId, actor } = visitOf(request);
    const { id } = request.params;
    const { kind } = await orders.cancel(accountId, id, actor);
    if (kind === 'unknown') throw new PageError('notFound');
    if (kind === 'not-pending') return renderOrder(request, reply, orders, 'notPending');
    return reply.redirect(`${ORDERS_PATH}/${id}?said=cancelled`, 303);
  });
}

/** Only owners order, and only while packages are on sale. */
export function creditsTabs(
  { words, role }: Visit,
  { packages }: Pick<Orders, 'packages'>,
  active: 'credits' | 'packages' | 'orders',
): VNode {
  const { credits, orders } = words;
  const all = [
    { href: CREDITS_PATH, label: credits.tab, active: active === 'credits' },
    { href: PACKAGES_PATH, label: orders.buy, active: active === 'packages' },
    { href: ORDERS_PATH, label: orders.title, active: active === 'orders' },
  ];
  const mayBuy = may(role, 'orders.manage') && packages.length > 0;
  const seen = all.filter(({ href }) => mayBuy || href !== PACKAGES_PATH);
  return ui.tabs(credits.title, seen);
}

function orderTable(
  { words, formats, role }: Visit,
  orders: readonly Order[],
  { packages }: Pick<Orders, 'packages'>,
): VNode {
  const text = words.orders;
  const buy = ui.linkButton({ href: PACKAGES_PATH, label: text.buy, kind: 'primary' });
  return ui.dataTable({
    caption: text.title,
    columns: [text.number, text.placedAt, text.state, ui.end(text.credits), ui.end(text.price)],
    rows: orders.map(order => [
      html`<a href=${`${ORDERS_PATH}/${order.id}`}>${referenceOf(order)}</a>`,
      ui.time(order.createdAtMs, formats.dateTime),
      stateBadge(words, order.state),
      formats.credits(order.credits),
      moneyOf(formats, order.price, order.currency),
    ]),
    empty: ui.emptyState({
      title: text.empty,
      text: text.emptyText,
      action: may(role, 'orders.manage') && packages.length > 0 ? buy : undefined,
    }),
  });
}

async function renderOrder(
  request: OrderRequest,
  reply: FastifyReply,
  orders: Orders,
  refused?: Refusal,
): Promise<FastifyReply> {
  const visit = visitOf(request);
  const shown = await orders.show(visit.accountId, request.params.id);
  if (shown === undefined) throw new PageError('notFound');
  const text = visit.words.orders;
  const { order, payments, refunds } = shown;
  const odd = payments.filter(({ outcome }) => outcome !== 'accepted');
  return renderPage(reply, {
    title: fill(text.one, { reference: referenceOf(order) }),
    back: { href: ORDERS_PATH, label: text.title },
    active: 'credits',
    notices: text.notices,
    status: refused === undefined ? 200 : 422,
    main: html`<div>
      ${refused === undefined ? null : ui.notice('bad', text.refused[refused])}
      ${odd.length === 0 ? null : ui.notice('warning', text.oddPayments)}
      ${order.unrevoked === 0 ? null : ui.notice('accent', text.unrevokedNote)}
      ${order.state === 'pending' ? howToPay(visit, order, orders.instructions) : null}
      ${ui.section({ title: text.facts }, orderFacts(visit, order))}
      ${odd.length === 0 ? null : oddPayments(visit, order, odd)}
      ${refunds.length === 0 ? null : refundTable(visit, order, refunds)}
    </div>`,
  });
}

function orderFacts({ words, formats }: Visit, order: Order): VNode {
  const text = words.orders;
  const at = (ms: number | null) => ui.time(ms, formats.dateTime);
  const { refunded, revoked, unrevoked, currency, credits } = order;
  const wasRefunded = refunded > 0;
  return ui.definitionList([
    [text.state, stateBadge(words, order.state)],
    [text.credits, formats.credits(credits)],
    [text.price, moneyOf(formats, order.price, currency)],
    [text.placedAt, at(order.createdAtMs)],
    [text.expiredAt, order.state === 'expired' ? at(order.expiresAtMs) : null],
    [text.paidAt, at(order.paidAtMs)],
    [text.payment, order.payment],
    [text.cancelledAt, order.stored === 'cancelled' ? at(order.cancelledAtMs) : null],
    [text.refunded, wasRefunded ? moneyOf(formats, refunded, currency) : null],
    [text.revoked, wasRefunded ? formats.credits(revoked) : null],
    [text.unrevoked, unrevoked > 0 ? formats.credits(unrevoked) : null],
  ]);
}

function howToPay(
  { words, formats, csrf, role }: Visit,
  order: Order,
  instructions: string | undefined,
) {
  const text = words.orders;
  const { id, price, currency, expiresAtMs } = order;
  const lines = (instructions ?? text.defaultInstructions).split('\n');
  const copied = (shown: string, copied: string) =>
    html`<span class="copied"><b>${shown}</b>${ui.copyButton(copied, words.common)}</span>`;
  const reference = referenceOf(order);
  return ui.section(
    { title: text.howToPay, lead: text.numberHint },
    ui.definitionList([
      [text.amount, copied(moneyOf(formats, price, currency), formatDecimal(price, currency))],
      [text.number, copied(reference, reference)],
      [text.payUntil, ui.time(expiresAtMs, formats.dateTime)],
      [text.payTo, lines.map(line => html`<p class="line">${line}</p>`)],
    ]),
    may(role, 'orders.manage')
      ? ui.postForm(
          { action: `${ORDERS_PATH}/${id}/cancel`, csrf, class: 'after' },
          ui.actions(
            ui.button({ label: text.cancel, kind: 'danger', confirm: text.cancelConfirm }),
          ),
        )
      : null,
  );
}

function oddPayments({ words, formats }: Visit, order: Order, odd: ShownOrder['payments']): VNode {
  const text = words.orders;
  return ui.section(
    { title: text.payments },
    ui.dataTable({
      caption: text.payments,
      columns: [text.payment, text.receivedAt, ui.end(text.sum), text.outcome],
      rows: odd.map(({ payment, receivedAtMs, amount, currency, outcome }) => [
        payment,
        ui.time(receivedAtMs, formats.dateTime),
        // The smallest unit of another currency is unknown.
        currency === order.currency
          ? moneyOf(formats, amount, currency)
          : `${formats.credits(amount)} (${currency})`,
        text.outcomes[outcome],
      ]),
    }),
  );
}

function refundTable(
  { words, formats }: Visit,
  { currency }: Order,
  refunds: ShownOrder['refunds'],
): VNode {
  const text = words.orders;
  return ui.section(
    { title: text.refunds },
    ui.dataTable({
      caption: text.refunds,
      columns: [
        text.refund,
        text.receivedAt,
        ui.end(text.sum),
        ui.end(text.revoked),
        ui.end(text.unrevoked),
      ],
      rows: refunds.map(({ refund, createdAtMs, amount, credits, revoked, appliedAtMs }) => [
        refund,
        ui.time(createdAtMs, formats.dateTime),
        moneyOf(formats, amount, currency),
        appliedAtMs === null ? text.waits : formats.credits(revoked),
        formats.credits(credits - revoked),
      ]),
    }),
  );
}

export const ORDER_TONES: Readonly<Record<OrderState, ui.Tone>> = {
  pending: 'warning',
  expired: 'neutral',
  cancelled: 'neutral',
  paid: 'good',
  'partly-refunded': 'accent',
  refunded: 'neutral',
};

/** Old orders have no reference. */
function referenceOf({ reference, id }: Order): string {
  return reference ?? id;
}

function stateBadge(words: Words, state: OrderState): VNode {
  return ui.badge(words.orders.states[state], ORDER_TONES[state]);
}

export function moneyOf(formats: Formats, amount: number, currency: string): string {
  return formats.money(Number(formatDecimal(amount, currency)), currency);
}
