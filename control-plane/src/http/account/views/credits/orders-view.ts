/** Orders of credit packages: what is on sale, the list, one order and how to pay it. */
import type { VNode } from 'preact';
import {
  formatDecimal,
  type Order,
  type OrderState,
  type PaymentOutcome,
} from '../../../../domain/account/orders.ts';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import { postForm } from '../components/fields.ts';
import {
  dataTable,
  definitionList,
  pager,
  panel,
  section,
  withQuery,
} from '../components/lists.ts';
import { badge, codeBlock, emptyState, notice, type Tone, time } from '../components/marks.ts';
import { html } from '../html.ts';
import { type CreditsPaths, creditsTabs } from './credits-view.ts';

interface Frame {
  readonly words: Words;
  readonly formats: Formats;
  readonly paths: CreditsPaths;
  readonly mayOrder: boolean;
}

export interface PackageRow {
  readonly list: 'credit' | 'image';
  readonly credits: number;
  readonly price: number;
  readonly currency: string;
  readonly unitPrice: string;
}

export interface PackagesProps extends Frame {
  readonly csrf: string;
  /** A new one each time the page is made: two orders of one page are one. */
  readonly form: string;
  readonly packages: readonly PackageRow[];
  /** Why nothing was ordered, in words. */
  readonly problem: string | undefined;
}

export function packagesPage(props: PackagesProps): VNode {
  const { words, paths, packages, problem } = props;
  const { orders } = words;
  return html`<div>
    ${creditsTabs(words, paths, 'packages', props.mayOrder)}
    ${problem === undefined ? null : notice('bad', problem)}
    ${dataTable({
      caption: orders.packages,
      columns: [
        { label: orders.credits },
        { label: packages[0]?.list === 'image' ? orders.perImage : orders.perCredit, align: 'end' },
        { label: orders.price, align: 'end' },
        { label: orders.order, silent: true },
      ],
      rows: packages.map(one => packageRow(props, one)),
      empty: emptyState({ title: orders.nothingOnSale, text: orders.nothingOnSaleText }),
    })}
  </div>`;
}

function packageRow({ words, formats, paths, csrf, form }: PackagesProps, sold: PackageRow) {
  const { credits, price, currency, unitPrice } = sold;
  const count = formats.credits(credits);
  const hidden = { form, credits: String(credits), price: String(price) };
  return [
    count,
    formats.money(Number(unitPrice), currency),
    moneyOf(formats, price, currency),
    postForm(
      { action: paths.orders, csrf, hidden, class: 'inline' },
      button({
        label: words.orders.order,
        kind: 'secondary',
        describe: fill(words.orders.orderPackage, { count }),
      }),
    ),
  ];
}

export interface OrdersProps extends Frame {
  readonly orders: readonly Order[];
  readonly next: string | undefined;
  readonly isFirst: boolean;
}

export function ordersPage(props: OrdersProps): VNode {
  const { words, formats, paths, orders, mayOrder, next, isFirst } = props;
  const text = words.orders;
  const buy = linkButton({ href: paths.packages, label: text.buy, kind: 'primary' });
  return html`<div>
    ${creditsTabs(words, paths, 'orders', mayOrder)}
    ${dataTable({
      caption: text.title,
      columns: [
        { label: text.placedAt },
        { label: text.state },
        { label: text.credits, align: 'end' },
        { label: text.price, align: 'end' },
        { label: text.number },
      ],
      rows: orders.map(order => [
        time(order.createdAtMs, formats.dateTime(order.createdAtMs)),
        stateBadge(words, order.state),
        formats.credits(order.credits),
        moneyOf(formats, order.price, order.currency),
        html`<a href=${`${paths.orders}/${order.id}`}>${order.id}</a>`,
      ]),
      empty: emptyState({
        title: text.empty,
        text: text.emptyText,
        action: mayOrder ? buy : undefined,
      }),
    })}
    ${pager(words.common, {
      next: next === undefined ? undefined : withQuery(paths.orders, { after: next }),
      first: isFirst ? undefined : paths.orders,
    })}
  </div>`;
}

export interface OrderProps extends Frame {
  readonly csrf: string;
  readonly order: Order;
  readonly payments: readonly {
    readonly payment: string;
    readonly outcome: PaymentOutcome;
    readonly amount: number;
    readonly currency: string;
    readonly receivedAtMs: number;
  }[];
  readonly refunds: readonly {
    readonly refund: string;
    readonly amount: number;
    readonly credits: number;
    readonly revoked: number;
    readonly createdAtMs: number;
    readonly appliedAtMs: number | null;
  }[];
  /** The operator's words; undefined: none. */
  readonly instructions: string | undefined;
  readonly problem: string | undefined;
}

export function orderPage(props: OrderProps): VNode {
  const { words, order, problem, payments } = props;
  const odd = payments.filter(({ outcome }) => outcome !== 'accepted');
  return html`<div>
    ${problem === undefined ? null : notice('bad', problem)}
    ${odd.length === 0 ? null : notice('warning', words.orders.oddPayments)}
    ${order.unrevoked === 0 ? null : notice('accent', words.orders.unrevokedNote)}
    ${orderFacts(props)}
    ${order.state === 'pending' ? howToPay(props) : null}
    ${odd.length === 0 ? null : oddPayments(props, odd)}
    ${props.refunds.length === 0 ? null : refundsOf(props)}
  </div>`;
}

function orderFacts({ words, formats, order }: OrderProps): VNode {
  const text = words.orders;
  const at = (ms: number | null) => (ms === null ? null : time(ms, formats.dateTime(ms)));
  const { refunded, revoked, unrevoked, currency, credits } = order;
  const wasRefunded = refunded > 0;
  return definitionList([
    [text.state, stateBadge(words, order.state)],
    [text.credits, formats.credits(credits)],
    [text.price, moneyOf(formats, order.price, currency)],
    [text.placedAt, at(order.createdAtMs)],
    [text.payUntil, order.stored === 'pending' ? at(order.expiresAtMs) : null],
    [text.paidAt, at(order.paidAtMs)],
    [text.payment, order.payment],
    [text.cancelledAt, order.stored === 'cancelled' ? at(order.cancelledAtMs) : null],
    [text.refunded, wasRefunded ? moneyOf(formats, refunded, currency) : null],
    [text.revoked, wasRefunded ? formats.credits(revoked) : null],
    [text.unrevoked, unrevoked > 0 ? formats.credits(unrevoked) : null],
  ]);
}

function howToPay({ words, paths, csrf, order, mayOrder, instructions }: OrderProps): VNode {
  const text = words.orders;
  const lines = (instructions ?? text.defaultInstructions).split('\n');
  return section(
    { title: text.howToPay },
    panel(
      ...lines.map(line => html`<p>${line}</p>`),
      html`<p class="hint">${text.numberHint}</p>`,
      codeBlock(order.id, words.common, text.number),
    ),
    mayOrder
      ? postForm(
          { action: `${paths.orders}/${order.id}/cancel`, csrf },
          html`<div class="actions">
            ${button({ label: text.cancel, kind: 'danger', confirm: text.cancelConfirm })}
          </div>`,
        )
      : null,
  );
}

function oddPayments({ words, formats, order }: OrderProps, odd: OrderProps['payments']): VNode {
  const text = words.orders;
  return section(
    { title: text.payments },
    dataTable({
      caption: text.payments,
      columns: [
        { label: text.payment },
        { label: text.receivedAt },
        { label: text.sum, align: 'end' },
        { label: text.outcome },
      ],
      rows: odd.map(({ payment, receivedAtMs, amount, currency, outcome }) => [
        payment,
        time(receivedAtMs, formats.dateTime(receivedAtMs)),
        // The smallest unit of another currency is not known.
        currency === order.currency
          ? moneyOf(formats, amount, currency)
          : `${formats.credits(amount)} (${currency})`,
        text.outcomes[outcome],
      ]),
    }),
  );
}

function refundsOf({ words, formats, order, refunds }: OrderProps): VNode {
  const text = words.orders;
  return section(
    { title: text.refunds },
    dataTable({
      caption: text.refunds,
      columns: [
        { label: text.refund },
        { label: text.receivedAt },
        { label: text.sum, align: 'end' },
        { label: text.revoked, align: 'end' },
        { label: text.unrevoked, align: 'end' },
      ],
      rows: refunds.map(({ refund, createdAtMs, amount, credits, revoked, appliedAtMs }) => [
        refund,
        time(createdAtMs, formats.dateTime(createdAtMs)),
        moneyOf(formats, amount, order.currency),
        appliedAtMs === null ? text.waits : formats.credits(revoked),
        formats.credits(credits - revoked),
      ]),
    }),
  );
}

const TONES: Readonly<Record<OrderState, Tone>> = {
  pending: 'warning',
  expired: 'neutral',
  cancelled: 'neutral',
  paid: 'good',
  'partly-refunded': 'accent',
  refunded: 'neutral',
};

function stateBadge(words: Words, state: OrderState): VNode {
  return badge(words.orders.states[state], TONES[state]);
}

function moneyOf(formats: Formats, amount: number, currency: string): string {
  return formats.money(Number(formatDecimal(amount, currency)), currency);
}
