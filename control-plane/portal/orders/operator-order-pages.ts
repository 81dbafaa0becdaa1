/** Orders of all accounts; saying that one was paid, or that money was paid back. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { ContractError } from '#contract/errors.ts';
import type { OperatorServices } from '../../core/http/app-services.ts';
import {
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from '../operator-pages/operator-frame.ts';
import {
  badge,
  button,
  type Child,
  dataTable,
  definitionList,
  emptyState,
  filterForm,
  html,
  notice,
  pager,
  postForm,
  section,
  selectField,
  textField,
  time,
} from '../page/html.ts';
import { formOf } from '../session/visit.ts';
import { counted, fill } from '../words/words.ts';
import {
  LISTED_ORDER_STATES,
  type OperateOrders,
  type OperatorListedOrder,
  type OperatorOrder,
  type OperatorOrderDetails,
} from './operate-orders.ts';
import { ORDER_TONES } from './order-pages.ts';
import { parseDecimal } from './order-rules.ts';

const ORDERS_PATH = `${PAGES_PATH}/orders`;
const PAGE_ROWS = 50;

export interface OrderPageServices extends Pick<OperatorServices, 'operateAccounts'> {
  readonly operateOrders: OperateOrders;
}

type OrderRequest = FastifyRequest<{ Params: { order: string } }>;

export function registerOrderPages(pages: FastifyInstance, services: OrderPageServices): void {
  const { operateOrders } = services;
  pages.get(ORDERS_PATH, (_request, reply) => renderList(reply, services));
  pages.get(`${ORDERS_PATH}/:order`, (request: OrderRequest, reply) =>
    renderOrder(request, reply, services),
  );
  pages.post(`${ORDERS_PATH}/:order/confirm`, (request: OrderRequest, reply) =>
    changeOrder(request, reply, services, async () => {
      const reference = formOf(request).text('reference').trim();
      const { order } = request.params;
      const { changed } = await operateOrders.confirm(order, reference || undefined);
      request.log.info({ command: 'orders confirm', order }, 'operator');
      return changed ? 'confirmed' : 'alreadyConfirmed';
    }),
  );
  pages.post(`${ORDERS_PATH}/:order/refund`, (request: OrderRequest, reply) =>
    changeOrder(request, reply, services, async () => {
      const form = formOf(request);
      const { order } = request.params;
      const typed = form.text('amount').trim();
      const { currency } = await operateOrders.show(order);
      const amount = typed === '' ? undefined : parseDecimal(typed, currency);
      if (typed !== '' && amount === undefined) {
        throw new ContractError('INVALID_REQUEST', operatorVisitOf(request).own.orders.amountWrong);
      }
      const reference = form.text('reference').trim() || form.text('fallback');
      const { changed } = await operateOrders.refund(order, { amount, reference });
      request.log.info({ command: 'orders refund', order, reference }, 'operator');
      return changed ? 'refunded' : 'alreadyRefunded';
    }),
  );
}

/** Shows the order again with what was refused; an unknown one is the page that says so. */
async function changeOrder(
  request: OrderRequest,
  reply: FastifyReply,
  services: OrderPageServices,
  change: () => Promise<keyof OperatorVisit['own']['said']>,
): Promise<FastifyReply> {
  try {
    const said = await change();
    return reply.redirect(
      `${ORDERS_PATH}/${encodeURIComponent(request.params.order)}?said=${said}`,
      303,
    );
  } catch (error) {
    const isRefusal = error instanceof ContractError && [400, 409].includes(error.spec.http);
    if (!isRefusal) throw error;
    return renderOrder(request, reply, services, error.message);
  }
}

async function renderList(
  reply: FastifyReply,
  { operateOrders, operateAccounts }: OrderPageServices,
): Promise<FastifyReply> {
  const { request } = reply;
  const visit = operatorVisitOf(request);
  const { words, own } = visit;
  const state = queryChoice(request, 'state', LISTED_ORDER_STATES);
  const account = queryValue(request, 'account');
  const after = queryValue(request, 'after');
  const orders = await operateOrders.list({ state, account, limit: PAGE_ROWS, after });
  const names = await operateAccounts.namesOf(orders.map(order => order.account_id));
  const next = orders.length === PAGE_ROWS ? orders.at(-1)?.cursor : undefined;
  const states = LISTED_ORDER_STATES.map(value => ({ value, label: own.orders.states[value] }));
  return renderOperatorPage(reply, {
    title: own.orders.title,
    lead: own.orders.lead,
    active: 'orders',
    main: html`${filterForm(
      ORDERS_PATH,
      selectField({
        name: 'state',
        label: own.state,
        options: [{ value: '', label: own.all }, ...states],
        value: state ?? '',
      }),
      textField({ name: 'account', label: own.accounts.find, value: account }),
      button({ label: own.filter, kind: 'secondary' }),
    )}
    ${orderTable(orders, names, visit)}
    ${pager(words.common, ORDERS_PATH, { after, next }, { state, account })}`,
  });
}

function orderTable(
  orders: readonly OperatorListedOrder[],
  names: ReadonlyMap<string, string>,
  visit: OperatorVisit,
): VNode {
  const { own } = visit;
  const words = own.orders;
  return dataTable({
    caption: words.caption,
    columns: [
      words.order,
      own.state,
      own.account,
      { label: words.package, align: 'end' },
      { label: words.price, align: 'end' },
      own.created,
    ],
    rows: orders.map(order => [
      html`<a href=${`${ORDERS_PATH}/${order.order_id}`}><code>${order.order_id}</code></a>`,
      badge(words.states[order.state], ORDER_TONES[order.state]),
      html`<a href=${`${PAGES_PATH}/accounts/${order.account_id}`}>${
        names.get(order.account_id) ?? order.account_id
      }</a>`,
      packageOf(order, visit),
      money(order.price, order, visit),
      instant(order.created_at, visit),
    ]),
    empty: emptyState({ title: words.empty, text: words.emptyText }),
  });
}

async function renderOrder(
  request: OrderRequest,
  reply: FastifyReply,
  { operateOrders, operateAccounts }: OrderPageServices,
  refusal?: string,
): Promise<FastifyReply> {
  const order = await operateOrders.show(request.params.order);
  const names = await operateAccounts.namesOf([order.account_id]);
  const visit = operatorVisitOf(request);
  const { own, formats } = visit;
  const words = own.orders;
  const isPaid = order.paid_at !== null;
  const isWhole = order.refunded_amount === order.amount;
  return renderOperatorPage(reply, {
    title: words.order,
    lead: html`<code>${order.order_id}</code>`,
    back: { href: ORDERS_PATH, label: words.title },
    active: 'orders',
    status: refusal === undefined ? 200 : 422,
    main: html`${refusal === undefined ? null : notice('bad', refusal)}
    ${definitionList([
      [own.state, badge(words.states[order.state], ORDER_TONES[order.state])],
      [
        own.account,
        html`<a href=${`${PAGES_PATH}/accounts/${order.account_id}`}>${
          names.get(order.account_id) ?? order.account_id
        }</a>`,
      ],
      [words.package, packageOf(order, visit)],
      [words.price, money(order.price, order, visit)],
      [own.created, instant(order.created_at, visit)],
      [words.expires, isPaid ? null : instant(order.expires_at, visit)],
      [words.paid, instant(order.paid_at, visit)],
      [words.paidBy, order.paid_by],
      [words.payment, order.payment && html`<code>${order.payment}</code>`],
      [words.refunded, order.refunded_amount > 0 ? money(order.refunded, order, visit) : null],
      [
        words.creditsRevoked,
        order.refunded_amount > 0 ? formats.credits(order.credits_revoked) : null,
      ],
      [
        words.creditsNotRevoked,
        order.credits_not_revoked > 0 ? formats.credits(order.credits_not_revoked) : null,
      ],
    ])}
    ${tableOf(order.payments.length, words.payments, paymentTable(order, visit))}
    ${tableOf(order.refunds.length, words.refunds, refundTable(order, visit))}
    ${isPaid ? null : confirmForm(order, visit)}
    ${isPaid && !isWhole ? refundForm(order, visit) : null}`,
  });
}

function tableOf(rows: number, title: string, table: VNode): VNode | null {
  return rows === 0 ? null : section({ title }, table);
}

function paymentTable(order: OperatorOrderDetails, visit: OperatorVisit): VNode {
  const words = visit.own.orders;
  return dataTable({
    caption: words.payments,
    columns: [
      words.payment,
      { label: words.sum, align: 'end' },
      words.outcome,
      words.toldBy,
      words.received,
    ],
    rows: order.payments.map(one => [
      html`<code>${one.payment}</code>`,
      one.sum === null ? `${one.amount} ${one.currency}` : money(one.sum, one, visit),
      html`<code>${one.outcome}</code>`,
      one.told_by,
      instant(one.received_at, visit),
    ]),
  });
}

function refundTable(order: OperatorOrderDetails, visit: OperatorVisit): VNode {
  const words = visit.own.orders;
  return dataTable({
    caption: words.refunds,
    columns: [
      words.reference,
      { label: words.sum, align: 'end' },
      { label: words.creditsRevoked, align: 'end' },
      words.toldBy,
      visit.own.created,
    ],
    rows: order.refunds.map(one => [
      html`<code>${one.refund}</code>`,
      money(one.sum, order, visit),
      visit.formats.credits(one.credits_revoked),
      one.told_by,
      instant(one.created_at, visit),
    ]),
  });
}

function confirmForm(order: OperatorOrder, visit: OperatorVisit): VNode {
  const { csrf } = visit;
  const words = visit.own.orders;
  return section(
    { title: words.confirm, lead: words.confirmLead },
    postForm(
      { action: `${ORDERS_PATH}/${order.order_id}/confirm`, csrf, class: 'form panel' },
      textField({
        name: 'reference',
        label: words.reference,
        hint: words.referenceHint,
        maxlength: 64,
      }),
      html`<div class="actions">${button({
        label: words.confirm,
        confirm: fill(words.confirmAsk, { price: money(order.price, order, visit) }),
      })}</div>`,
    ),
  );
}

function refundForm(order: OperatorOrder, visit: OperatorVisit): VNode {
  const { csrf } = visit;
  const words = visit.own.orders;
  return section(
    { title: words.refund, lead: words.refundLead },
    postForm(
      {
        action: `${ORDERS_PATH}/${order.order_id}/refund`,
        csrf,
        // Sent twice by a double click it is entered once.
        hidden: { fallback: `page-${randomUUID()}` },
        class: 'form panel',
      },
      textField({
        name: 'amount',
        label: fill(words.amount, { currency: order.currency }),
        hint: words.amountHint,
        inputmode: 'decimal',
      }),
      textField({
        name: 'reference',
        label: visit.own.accounts.reference,
        hint: visit.own.accounts.referenceHint,
        maxlength: 64,
      }),
      html`<div class="actions">${button({
        label: words.refundSubmit,
        kind: 'danger',
        confirm: words.refundAsk,
      })}</div>`,
    ),
  );
}

function packageOf(order: OperatorOrder, { language, words }: OperatorVisit): string {
  return counted(language, words.common.credits, order.credits);
}

/** @param sum a decimal of major units */
function money(
  sum: string,
  { currency }: { readonly currency: string },
  { formats }: OperatorVisit,
) {
  return formats.money(Number(sum), currency);
}

function instant(iso: string | null, { formats }: OperatorVisit): Child {
  return time(iso, formats.dateTime);
}
