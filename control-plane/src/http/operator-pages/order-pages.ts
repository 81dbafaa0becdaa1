/** Orders of all accounts; saying that one was paid, or that money was paid back. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { ContractError } from '#contract/errors.ts';
import { parseDecimal } from '../../domain/account/orders.ts';
import type { OperateAccounts } from '../../services/operator/operate-accounts.ts';
import {
  LISTED_ORDER_STATES,
  type OperateOrders,
  type OperatorListedOrder,
  type OperatorOrder,
  type OperatorOrderDetails,
} from '../../services/sales/operate-orders.ts';
import { formOf } from '../account/session/signed-in.ts';
import { button } from '../account/views/components/buttons.ts';
import {
  filterForm,
  postForm,
  selectField,
  textField,
} from '../account/views/components/fields.ts';
import {
  dataTable,
  definitionList,
  pager,
  section,
  withQuery,
} from '../account/views/components/lists.ts';
import { badge, emptyState, notice, type Tone, time } from '../account/views/components/marks.ts';
import { type Child, html } from '../account/views/html.ts';
import { counted, fill } from '../account/words/words.ts';
import { csrfOf, PAGES_PATH, renderOperatorPage, type Tongue, tongueOf } from './operator-frame.ts';
import { queryChoice, queryValue } from './query-values.ts';

export interface OrderPageServices {
  readonly operateOrders: Pick<OperateOrders, 'list' | 'show' | 'confirm' | 'refund'>;
  readonly operateAccounts: Pick<OperateAccounts, 'namesOf'>;
}

const ORDERS_PATH = `${PAGES_PATH}/orders`;
const PAGE_ROWS = 50;
const TONES: Readonly<Record<OperatorOrder['state'], Tone>> = {
  pending: 'warning',
  paid: 'good',
  'partly-refunded': 'accent',
  refunded: 'neutral',
  expired: 'neutral',
  cancelled: 'neutral',
};

type OrderRequest = FastifyRequest<{ Params: { order: string } }>;

export function registerOrderPages(pages: FastifyInstance, services: OrderPageServices): void {
  const { operateOrders } = services;
  pages.get(ORDERS_PATH, (request, reply) => renderList(request, reply, services));
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
        throw new ContractError('INVALID_REQUEST', tongueOf(request).own.orders.amountWrong);
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
  change: () => Promise<keyof Tongue['own']['said']>,
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
  request: FastifyRequest,
  reply: FastifyReply,
  { operateOrders, operateAccounts }: OrderPageServices,
): Promise<FastifyReply> {
  const tongue = tongueOf(request);
  const { words, own } = tongue;
  const state = queryChoice(request, 'state', LISTED_ORDER_STATES);
  const account = queryValue(request, 'account');
  const after = queryValue(request, 'after');
  const orders = await operateOrders.list({ state, account, limit: PAGE_ROWS, after });
  const names = await operateAccounts.namesOf(orders.map(order => order.account_id));
  const next = orders.length === PAGE_ROWS ? orders.at(-1)?.cursor : undefined;
  const states = LISTED_ORDER_STATES.map(value => ({ value, label: own.orders.states[value] }));
  return renderOperatorPage(request, reply, {
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
    ${orderTable(orders, names, tongue)}
    ${pager(words.common, {
      next:
        next === undefined ? undefined : withQuery(ORDERS_PATH, { state, account, after: next }),
      first: after === undefined ? undefined : withQuery(ORDERS_PATH, { state, account }),
    })}`,
  });
}

function orderTable(
  orders: readonly OperatorListedOrder[],
  names: ReadonlyMap<string, string>,
  tongue: Tongue,
): VNode {
  const { own } = tongue;
  const words = own.orders;
  return dataTable({
    caption: words.caption,
    columns: [
      { label: words.order },
      { label: own.state },
      { label: own.account },
      { label: words.package, align: 'end' },
      { label: words.price, align: 'end' },
      { label: own.created },
    ],
    rows: orders.map(order => [
      html`<a href=${`${ORDERS_PATH}/${order.order_id}`}><code>${order.order_id}</code></a>`,
      badge(words.states[order.state], TONES[order.state]),
      html`<a href=${`${PAGES_PATH}/accounts/${order.account_id}`}>${
        names.get(order.account_id) ?? order.account_id
      }</a>`,
      packageOf(order, tongue),
      money(order.price, order, tongue),
      instant(order.created_at, tongue),
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
  const tongue = tongueOf(request);
  const { own, formats } = tongue;
  const words = own.orders;
  const isPaid = order.paid_at !== null;
  const isWhole = order.refunded_amount === order.amount;
  return renderOperatorPage(request, reply, {
    title: words.order,
    lead: html`<code>${order.order_id}</code>`,
    back: { href: ORDERS_PATH, label: words.title },
    active: 'orders',
    status: refusal === undefined ? 200 : 422,
    main: html`${refusal === undefined ? null : notice('bad', refusal)}
    ${definitionList([
      [own.state, badge(words.states[order.state], TONES[order.state])],
      [
        own.account,
        html`<a href=${`${PAGES_PATH}/accounts/${order.account_id}`}>${
          names.get(order.account_id) ?? order.account_id
        }</a>`,
      ],
      [words.package, packageOf(order, tongue)],
      [words.price, money(order.price, order, tongue)],
      [own.created, instant(order.created_at, tongue)],
      [words.expires, isPaid ? null : instant(order.expires_at, tongue)],
      [words.paid, instant(order.paid_at, tongue)],
      [words.paidBy, order.paid_by],
      [words.payment, order.payment && html`<code>${order.payment}</code>`],
      [words.refunded, order.refunded_amount > 0 ? money(order.refunded, order, tongue) : null],
      [
        words.creditsRevoked,
        order.refunded_amount > 0 ? formats.credits(order.credits_revoked) : null,
      ],
      [
        words.creditsNotRevoked,
        order.credits_not_revoked > 0 ? formats.credits(order.credits_not_revoked) : null,
      ],
    ])}
    ${tableOf(order.payments.length, words.payments, paymentTable(order, tongue))}
    ${tableOf(order.refunds.length, words.refunds, refundTable(order, tongue))}
    ${isPaid ? null : confirmForm(order, tongue, csrfOf(request))}
    ${isPaid && !isWhole ? refundForm(order, tongue, csrfOf(request)) : null}`,
  });
}

function tableOf(rows: number, title: string, table: VNode): VNode | null {
  return rows === 0 ? null : section({ title }, table);
}

function paymentTable(order: OperatorOrderDetails, tongue: Tongue): VNode {
  const words = tongue.own.orders;
  return dataTable({
    caption: words.payments,
    columns: [
      { label: words.payment },
      { label: words.sum, align: 'end' },
      { label: words.outcome },
      { label: words.toldBy },
      { label: words.received },
    ],
    rows: order.payments.map(one => [
      html`<code>${one.payment}</code>`,
      one.sum === null ? `${one.amount} ${one.currency}` : money(one.sum, one, tongue),
      html`<code>${one.outcome}</code>`,
      one.told_by,
      instant(one.received_at, tongue),
    ]),
  });
}

function refundTable(order: OperatorOrderDetails, tongue: Tongue): VNode {
  const words = tongue.own.orders;
  return dataTable({
    caption: words.refunds,
    columns: [
      { label: words.reference },
      { label: words.sum, align: 'end' },
      { label: words.creditsRevoked, align: 'end' },
      { label: words.toldBy },
      { label: tongue.own.created },
    ],
    rows: order.refunds.map(one => [
      html`<code>${one.refund}</code>`,
      money(one.sum, order, tongue),
      tongue.formats.credits(one.credits_revoked),
      one.told_by,
      instant(one.created_at, tongue),
    ]),
  });
}

function confirmForm(order: OperatorOrder, tongue: Tongue, csrf: string): VNode {
  const words = tongue.own.orders;
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
        confirm: fill(words.confirmAsk, { price: money(order.price, order, tongue) }),
      })}</div>`,
    ),
  );
}

function refundForm(order: OperatorOrder, tongue: Tongue, csrf: string): VNode {
  const words = tongue.own.orders;
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
        label: tongue.own.accounts.reference,
        hint: tongue.own.accounts.referenceHint,
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

function packageOf(order: OperatorOrder, { language, words }: Tongue): string {
  return counted(language, words.common.credits, order.credits);
}

/** @param sum a decimal of major units */
function money(sum: string, { currency }: { readonly currency: string }, { formats }: Tongue) {
  return formats.money(Number(sum), currency);
}

function instant(iso: string | null, { formats }: Tongue): Child {
  return iso === null ? null : time(Date.parse(iso), formats.dateTime(Date.parse(iso)));
}
