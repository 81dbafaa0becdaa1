/**
 * Accounts with their balances, giving credits and taking them back; orders of all accounts, saying
 * that one was paid, or that money was paid back.
 */

import { randomUUID } from 'node:crypto';
import type { OperatorAccount } from '@matting/core/accounts/operate-accounts.ts';
import type { OperatorServices } from '@matting/core/http/app-services.ts';
import {
  CREDITS_AMOUNT_MAX,
  isCreditAmount,
  isLedgerReference,
} from '@matting/core/ledger/ledger.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import {
  LISTED_ORDER_STATES,
  OPERATOR,
  type OperateOrders,
  type OperatorListedOrder,
  type OperatorOrder,
  type OperatorOrderDetails,
} from '../orders/operate-orders.ts';
import { ORDER_TONES } from '../orders/order-pages.ts';
import { parseDecimal } from '../orders/order-rules.ts';
import * as ui from '../page/html.ts';
import { type Child, html } from '../page/html.ts';
import { formOf } from '../session/visit.ts';
import { counted, fill } from '../words/words.ts';
import {
  type AccountNames,
  accountLink,
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from './operator-frame.ts';

const ACCOUNTS_PATH = `${PAGES_PATH}/accounts`;
const PAGE_ROWS = 50;
type Kind = 'grant' | 'revoke';
interface Typed {
  readonly kind: Kind;
  readonly amount: string;
  readonly reference: string;
  readonly wrong: Readonly<Partial<Record<'amount' | 'reference', string>>>;
}

export function registerAccountPages(pages: FastifyInstance, services: OperatorServices): void {
  const { operateAccounts } = services;
  pages.get(ACCOUNTS_PATH, async (request, reply) => {
    const found = queryValue(request, 'find');
    if (found === undefined) return renderAccounts(reply, services);
    const { account_id } = await operateAccounts.show(found);
    return reply.redirect(`${ACCOUNTS_PATH}/${account_id}`, 303);
  });
  pages.post(ACCOUNTS_PATH, async (request, reply) => {
    const name = formOf(request).text('name');
    const words = operatorVisitOf(request).own.accounts;
    const wrong = (error: string) => renderAccounts(reply, services, { name, error });
    if (!operateAccounts.isName(name)) return wrong(words.nameWrong);
    const account = await operateAccounts.create(name);
    if (account === undefined) return wrong(words.nameTaken);
    request.log.info({ command: 'accounts create', accountId: account.account_id }, 'operator');
    return reply.redirect(`${ACCOUNTS_PATH}/${account.account_id}?said=created`, 303);
  });
  pages.get<{ Params: { account: string } }>(`${ACCOUNTS_PATH}/:account`, (request, reply) =>
    renderAccount(reply, services, request.params.account),
  );
  for (const kind of ['grant', 'revoke'] as const) {
    pages.post<{ Params: { account: string } }>(
      `${ACCOUNTS_PATH}/:account/${kind}`,
      (request, reply) => move(reply, services, { kind, account: request.params.account }),
    );
  }
}

async function renderAccounts(
  reply: FastifyReply,
  { operateAccounts }: OperatorServices,
  typed?: { readonly name: string; readonly error: string },
): Promise<FastifyReply> {
  const { request } = reply;
  const after = queryValue(request, 'after');
  const accounts = await operateAccounts.page({ limit: PAGE_ROWS, after });
  const { words, own, formats } = operatorVisitOf(request);
  const texts = own.accounts;
  const next = accounts.length === PAGE_ROWS ? accounts.at(-1)?.name : undefined;
  return renderOperatorPage(reply, {
    title: texts.title,
    lead: texts.lead,
    active: 'accounts',
    status: typed === undefined ? 200 : 422,
    main: html`${ui.filterForm(
      ACCOUNTS_PATH,
      ui.textField({ name: 'find', label: texts.find, type: 'search', maxlength: 64 }),
      ui.button({ label: texts.findSubmit, kind: 'secondary' }),
    )}
    ${ui.dataTable({
      caption: texts.caption,
      columns: [texts.name, ui.end(texts.available), ui.end(texts.reserved), own.created, own.id],
      rows: accounts.map(({ account_id, name, credits, created_at }) => [
        html`<a href=${`${ACCOUNTS_PATH}/${account_id}`}>${name}</a>`,
        formats.credits(credits.available),
        formats.credits(credits.reserved),
        ui.time(created_at, formats.date),
        html`<code>${account_id}</code>`,
      ]),
      empty: ui.emptyState({ title: texts.empty, text: texts.emptyText }),
    })}
    ${ui.pager(words.common, ACCOUNTS_PATH, { after, next })}
    ${ui.section(
      { title: texts.create, lead: texts.createLead },
      ui.postForm(
        { action: ACCOUNTS_PATH, csrf: operatorVisitOf(request).csrf, class: 'form panel' },
        ui.textField({
          name: 'name',
          label: texts.name,
          hint: texts.nameHint,
          value: typed?.name,
          error: typed?.error,
          required: true,
        }),
        ui.actions(ui.button({ label: texts.createSubmit })),
      ),
    )}`,
  });
}

async function renderAccount(
  reply: FastifyReply,
  services: OperatorServices,
  nameOrId: string,
  typed?: Typed,
): Promise<FastifyReply> {
  const { request } = reply;
  const account = await services.operateAccounts.show(nameOrId);
  const credits = await services.operateCredits.show(account.account_id);
  const { own, formats, words: all } = operatorVisitOf(request);
  const words = own.accounts;
  const figure = (label: string, count: number) => ({ label, value: formats.credits(count) });
  return renderOperatorPage(reply, {
    title: account.name,
    lead: ui.copyable(account.account_id, all.common),
    back: { href: ACCOUNTS_PATH, label: words.title },
    active: 'accounts',
    status: typed === undefined ? 200 : 422,
    actions: html`${ui.linkButton({
      href: ui.withQuery(`${PAGES_PATH}/jobs`, { account: account.account_id }),
      label: words.jobs,
    })}${ui.linkButton({
      href: ui.withQuery(`${PAGES_PATH}/orders`, { account: account.account_id }),
      label: words.orders,
    })}`,
    main: html`${ui.figures([
      figure(words.available, credits.available),
      figure(words.reserved, credits.reserved),
      figure(words.charged, credits.charged),
      figure(words.granted, credits.granted),
      figure(words.revoked, credits.revoked),
    ])}
    <div class="columns">
      ${(['grant', 'revoke'] as const).map(kind => movementForm(request, account, kind, typed))}
    </div>`,
  });
}

function movementForm(
  request: FastifyRequest,
  account: OperatorAccount,
  kind: Kind,
  typed: Typed | undefined,
): VNode {
  const words = operatorVisitOf(request).own.accounts;
  const own = typed?.kind === kind ? typed : undefined;
  const submit = kind === 'grant' ? words.grantSubmit : words.revokeSubmit;
  const lead = kind === 'grant' ? words.grantLead : words.revokeLead;
  return ui.section(
    { title: words[kind], lead },
    ui.postForm(
      {
        action: `${ACCOUNTS_PATH}/${account.account_id}/${kind}`,
        csrf: operatorVisitOf(request).csrf,
        // Sent twice by a double click it is entered once.
        hidden: { fallback: `page ${randomUUID()}` },
        class: 'form panel',
      },
      ui.textField({
        name: 'amount',
        id: `${kind}-amount`,
        label: words.amount,
        inputmode: 'numeric',
        required: true,
        value: own?.amount,
        error: own?.wrong.amount,
      }),
      ui.textField({
        name: 'reference',
        id: `${kind}-reference`,
        label: words.reference,
        hint: words.referenceHint,
        maxlength: 128,
        value: own?.reference,
        error: own?.wrong.reference,
      }),
      ui.actions(
        kind === 'grant'
          ? ui.button({ label: submit })
          : ui.button({ label: submit, kind: 'danger', confirm: words.revokeConfirm }),
      ),
    ),
  );
}

async function move(
  reply: FastifyReply,
  services: OperatorServices,
  { kind, account }: { readonly kind: Kind; readonly account: string },
): Promise<FastifyReply> {
  const { request } = reply;
  const form = formOf(request);
  const { own, formats } = operatorVisitOf(request);
  const words = own.accounts;
  const [amount, reference] = [form.text('amount').trim(), form.text('reference').trim()];
  const again = (wrong: Typed['wrong']) =>
    renderAccount(reply, services, account, { kind, amount, reference, wrong });
  const credits = /^[0-9]{1,10}$/.test(amount) ? Number(amount) : 0;
  const called = reference === '' ? form.text('fallback') : reference;
  if (!isCreditAmount(credits)) {
    return again({ amount: fill(words.amountWrong, { max: formats.credits(CREDITS_AMOUNT_MAX) }) });
  }
  if (!isLedgerReference(called)) return again({ reference: words.referenceWrong });
  const movement = { kind, account, amount: credits, reference: called };
  const outcome = await services.operateCredits.move(movement);
  switch (outcome.kind) {
    case 'reference-conflict': {
      const count = formats.credits(outcome.amount);
      return again({ reference: fill(words.referenceTaken, { count }) });
    }
    case 'insufficient-credits': {
      const count = formats.credits(outcome.balances.available);
      return again({ amount: fill(words.insufficient, { count }) });
    }
  }
  request.log.info({ command: `credits ${kind}`, account, credits, reference: called }, 'operator');
  const said = kind === 'grant' ? 'granted' : 'revoked';
  const code = outcome.kind === 'entered' ? said : 'alreadyEntered';
  return reply.redirect(`${ACCOUNTS_PATH}/${encodeURIComponent(account)}?said=${code}`, 303);
}

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
    columns: [words.payment, ui.end(words.sum), words.outcome, words.toldBy, words.received],
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
      words.toldBy,
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

/** @param name of the payment provider, or `operator` */
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
