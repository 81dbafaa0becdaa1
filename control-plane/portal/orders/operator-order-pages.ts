import { randomUUID } from 'node:crypto';
import type { OperatorServices } from '@matting/core/http/app-services.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { type Child, html } from '../page/html.ts';
import {
  type AccountNames,
  accountLink,
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from '../page/operator-frame.ts';
import * as ui from '../page/ui.ts';
import { formOf } from '../session/visit.ts';
import { counted, fill } from '../words/words.ts';
import {
  LISTED_ORDER_STATES,
  OPERATOR,
  type OperateOrders,
  type OperatorListedOrder,
  type OperatorOrder,
  type OperatorOrderDetails,
} from './operate-orders.ts';
import { ORDER_TONES } from './order-pages.ts';
import { parseDecimal } from './order-rules.ts';

const PAGE_ROWS = 50;
const ORDERS_PATH = `${PAGES_PATH}/orders`;
export interface OrderPageServices extends Pick<OperatorServices, 'operateAccounts'> {
  readonly operateOrders: OperateOrders;
}

type OrderRequest = FastifyRequest<{ Params: { order: string } }>;

export function registerOrderPages(pages: FastifyInstance, services: OrderPageServices): void {
  const { operateOrders } = services;
  pages.get(ORDERS_PATH, (_request, reply) => renderOrders(reply, services));
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

async function changeOrder(
  request: OrderRequest,
  reply: FastifyReply,
  services: OrderPageServices,
  change: () => Promise<keyof OperatorVisit['own']['notices']>,
): Promise<FastifyReply> {
  try {
    const notice = await change();
    return reply.redirect(
      `${ORDERS_PATH}/${encodeURIComponent(request.params.order)}?said=${notice}`,
      303,
    );
  } catch (error) {
    const isRefusal = error instanceof ContractError && [400, 409].includes(error.spec.http);
    if (!isRefusal) throw error;
    return renderOrder(request, reply, services, error.message);
  }
}

async function renderOrders(
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
    main: html`${ui.filterForm(
      ORDERS_PATH,
      ui.selectField({
        name: 'state',
        label: own.state,
        options: [{ value: '', label: own.all }, ...states],
        value: state ?? '',
      }),
      ui.textField({ name: 'account', label: own.accounts.find, value: account }),
      ui.button({ label: own.filter, kind: 'secondary' }),
    )}
    ${orderTable(orders, names, visit)}
    ${ui.pager(words.common, ORDERS_PATH, { after, next }, { state, account })}`,
  });
}

function orderTable(
  orders: readonly OperatorListedOrder[],
  names: AccountNames,
  visit: OperatorVisit,
): VNode {
  const { own } = visit;
  const words = own.orders;
  return ui.dataTable({
    caption: words.caption,
    columns: [
      words.order,
      own.state,
      own.account,
      ui.end(words.package),
      ui.end(words.price),
      own.created,
    ],
    rows: orders.map(order => [
      html`<a href=${`${ORDERS_PATH}/${order.order_id}`}><code>${order.reference ?? order.order_id}</code></a>`,
      ui.badge(words.states[order.state], ORDER_TONES[order.state]),
      accountLink(order.account_id, names),
      packageOf(order, visit),
      money(order.price, order, visit),
      instant(order.created_at, visit),
    ]),
    empty: ui.emptyState({ title: words.empty, text: words.emptyText }),
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
    title: `${words.order} ${order.reference ?? ''}`,
    lead: ui.copyable(order.order_id, visit.words.common),
    back: { href: ORDERS_PATH, label: words.title },
    active: 'orders',
    status: refusal === undefined ? 200 : 422,
    main: html`${refusal === undefined ? null : ui.notice('bad', refusal)}
    ${ui.definitionList([
      [own.state, ui.badge(words.states[order.state], ORDER_TONES[order.state])],
      [own.account, accountLink(order.account_id, names)],
      [words.package, packageOf(order, visit)],
      [words.price, money(order.price, order, visit)],
      [own.created, instant(order.created_at, visit)],
      [words.expires, isPaid ? null : instant(order.expires_at, visit)],
      [words.paid, instant(order.paid_at, visit)],
      [words.paidBy, order.paid_by && actorName(order.paid_by, visit)],
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
  return rows === 0 ? null : ui.section({ title }, table);
}

function paymentTable(order: OperatorOrderDetails, visit: OperatorVisit): VNode {
  const words = visit.own.orders;
  return ui.dataTable({
    caption: words.payments,
    columns: [words.payment, ui.end(words.sum), words.outcome, words.reportedBy, words.received],
    rows: order.payments.map(one => [
      html`<code>${one.payment}</code>`,
      one.sum === null ? `${one.amount} ${one.currency}` : money(one.sum, one, visit),
      visit.words.orders.outcomes[one.outcome],
      actorName(one.told_by, visit),
      instant(one.received_at, visit),
    ]),
  });
}

function refundTable(order: OperatorOrderDetails, visit: OperatorVisit): VNode {
  const words = visit.own.orders;
  return ui.dataTable({
    caption: words.refunds,
    columns: [
      words.reference,
      ui.end(words.sum),
      ui.end(words.creditsRevoked),
      words.reportedBy,
      visit.own.created,
    ],
    rows: order.refunds.map(one => [
      html`<code>${one.refund}</code>`,
      money(one.sum, order, visit),
      visit.formats.credits(one.credits_revoked),
      actorName(one.told_by, visit),
      instant(one.created_at, visit),
    ]),
  });
}

function actorName(name: string, { words: { audit } }: OperatorVisit): string {
  return name === OPERATOR ? audit.actors.operator : audit.actors.payment;
}

function confirmForm(order: OperatorOrder, visit: OperatorVisit): VNode {
  const { csrf } = visit;
  const words = visit.own.orders;
  return ui.section(
    { title: words.confirm, lead: words.confirmLead },
    ui.postForm(
      { action: `${ORDERS_PATH}/${order.order_id}/confirm`, csrf, class: 'form panel' },
      ui.textField({
        name: 'reference',
        label: words.reference,
        hint: words.referenceHint,
        maxlength: 64,
      }),
      ui.actions(
        ui.button({
          label: words.confirm,
          confirm: fill(words.confirmAsk, { price: money(order.price, order, visit) }),
        }),
      ),
    ),
  );
}

function refundForm(order: OperatorOrder, visit: OperatorVisit): VNode {
  const { csrf } = visit;
  const words = visit.own.orders;
  return ui.section(
    { title: words.refund, lead: words.refundLead },
    ui.postForm(
      {
        action: `${ORDERS_PATH}/${order.order_id}/refund`,
        csrf,
        hidden: { fallback: `page-${randomUUID()}` },
        class: 'form panel',
      },
      ui.textField({
        name: 'amount',
        label: fill(words.amount, { currency: order.currency }),
        hint: words.amountHint,
        inputmode: 'decimal',
      }),
      ui.textField({
        name: 'reference',
        label: visit.own.accounts.reference,
        hint: visit.own.accounts.referenceHint,
        maxlength: 64,
      }),
      ui.actions(
        ui.button({
          label: words.refundSubmit,
          kind: 'danger',
          confirm: words.refundAsk,
        }),
      ),
    ),
  );
}

function packageOf(order: OperatorOrder, { language, words }: OperatorVisit): string {
  return counted(language, words.common.credits, order.credits);
}

function money(
  sum: string,
  { currency }: { readonly currency: string },
  { formats }: OperatorVisit,
) {
  return formats.money(Number(sum), currency);
}

function instant(iso: string | null, { formats }: OperatorVisit): Child {
  return ui.time(iso, formats.dateTime);
}
