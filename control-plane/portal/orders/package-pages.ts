import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { renderPage } from '../page/account-frame.ts';
import { html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { formOf, PageError, queryText, type Visit, visitOf } from '../session/visit.ts';
import { lastingText, paceOf } from '../usage/pace.ts';
import type { ReadUsage } from '../usage/read-usage.ts';
import { counted, fill, type Words } from '../words/words.ts';
import type { LedgerHistory } from './ledger-history.ts';
import {
  creditsTabs,
  MANAGE_ORDERS,
  moneyOf,
  ORDERS_PATH,
  type Orders,
  PACKAGES_PATH,
  type PackageOnSale,
} from './order-pages.ts';

const REVIEW_PATH = `${ORDERS_PATH}/new`;
const FORM = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const WHOLE = /^\d{1,13}$/;
const REFUSALS = {
  'too-many-pending': 'tooManyPending',
  'too-many-today': 'tooManyToday',
  'not-on-sale': 'notOnSale',
} as const;
const RECOMMENDED_DAYS_MAX = 365;

type Refusal = keyof Words['orders']['refused'];

interface PackageServices {
  readonly orders: Orders;
  readonly readUsage: Pick<ReadUsage, 'view'>;
  readonly ledgerHistory: Pick<LedgerHistory, 'balance'>;
}

export function registerPackageRoutes(account: FastifyInstance, services: PackageServices): void {
  account.get('/orders/packages', MANAGE_ORDERS, (_request, reply) =>
    renderPackages(reply, services),
  );
  account.get('/orders/new', MANAGE_ORDERS, (_request, reply) => renderReview(reply, services));
  account.post('/orders', MANAGE_ORDERS, (_request, reply) => place(reply, services));
}

/** All fields are hidden: wrong ones come from a forged form. */
async function place(reply: FastifyReply, services: PackageServices) {
  const { request } = reply;
  const fields = formOf(request);
  const form = fields.text('form');
  if (!FORM.test(form)) throw new PageError('badForm');
  const chosen = chosenOf(name => fields.text(name));
  const { accountId, actor } = visitOf(request);
  const outcome = await services.orders.place(accountId, { form, ...chosen }, actor);
  switch (outcome.kind) {
    case 'placed':
    case 'already-placed':
      return reply.redirect(`${ORDERS_PATH}/${outcome.order.id}?said=placed`, 303);
    case 'unknown-account':
      throw new Error('a session of an account that is not there');
    default:
      return renderPackages(reply, services, REFUSALS[outcome.kind]);
  }
}

function chosenOf(textOf: (name: 'credits' | 'price') => string) {
  const [credits, price] = [textOf('credits'), textOf('price')];
  if (!WHOLE.test(credits) || !WHOLE.test(price)) throw new PageError('badForm');
  return { credits: Number(credits), price: Number(price) };
}

/** A GET without effects. The button places the order, at the shown price only. */
async function renderReview(reply: FastifyReply, services: PackageServices) {
  const { orders, readUsage, ledgerHistory } = services;
  const visit = visitOf(reply.request);
  const { words, formats, csrf, accountId } = visit;
  const text = words.orders;
  if (['credits', 'price'].every(name => queryText(reply.request, name) === '')) {
    return renderPackages(reply, services);
  }
  const chosen = chosenOf(name => queryText(reply.request, name));
  const sold = orders.onSale(chosen);
  if (sold === undefined) return renderPackages(reply, services, 'notOnSale');
  const pace = paceOf(await readUsage.view(accountId, {}));
  const { available } = await ledgerHistory.balance(accountId);
  const { credits, price, currency } = sold;
  const hidden = { form: randomUUID(), credits: String(credits), price: String(price) };
  return renderPage(reply, {
    title: text.review,
    lead: text.reviewLead,
    back: { href: PACKAGES_PATH, label: text.packages },
    active: 'credits',
    main: html`<div>
      ${ui.definitionList([
        [text.package, creditsText(visit, credits)],
        [unitLabel(words, sold), unitPrice(visit, sold)],
        [text.price, html`<b>${moneyOf(formats, price, currency)}</b>`],
        [text.lasts, pace === undefined ? null : lastingText(visit, credits, pace)],
        [text.afterwards, creditsText(visit, available + credits)],
      ])}
      ${ui.postForm(
        { action: ORDERS_PATH, csrf, hidden, class: 'stack after' },
        html`<p class="hint">${text.reviewHint}</p>`,
        ui.actions(
          ui.button({ label: text.place }),
          ui.linkButton({ href: PACKAGES_PATH, label: text.other, kind: 'quiet' }),
        ),
      )}
    </div>`,
  });
}

async function renderPackages(
  reply: FastifyReply,
  { orders: sold, readUsage }: PackageServices,
  refused?: Refusal,
): Promise<FastifyReply> {
  const visit = visitOf(reply.request);
  const { orders } = visit.words;
  const { packages } = sold;
  const pace = paceOf(await readUsage.view(visit.accountId, {}));
  const recommended = recommendedOf(packages, pace);
  return renderPage(reply, {
    title: orders.buy,
    lead: orders.buyLead,
    active: 'credits',
    status: refused === undefined ? 200 : 422,
    main: html`<div>
      ${creditsTabs(visit, sold, 'packages')}
      ${refused === undefined ? null : ui.notice('bad', orders.refused[refused])}
      ${
        packages.length === 0
          ? ui.panel(ui.emptyState({ title: orders.nothingOnSale, text: orders.nothingOnSaleText }))
          : html`<ul class="packages">${packages.map(one =>
              packageCard(visit, one, {
                pace,
                saving: savingOf(one, packages),
                isRecommended: one === recommended,
              }),
            )}</ul>`
      }
    </div>`,
  });
}

export function recommendedOf<T extends Pick<PackageOnSale, 'credits'>>(
  packages: readonly T[],
  pace: number | undefined,
): T | undefined {
  const bySize = packages.toSorted((one, other) => one.credits - other.credits);
  const most = (pace ?? 0) * RECOMMENDED_DAYS_MAX;
  return bySize.findLast(({ credits }) => credits <= most) ?? bySize[0];
}

/** Hundredths saved against the dearest credit on sale, rounded down. */
export function savingOf(
  { credits, price }: Pick<PackageOnSale, 'credits' | 'price'>,
  packages: readonly Pick<PackageOnSale, 'credits' | 'price'>[],
): number {
  // Only a ratio, so fractions are safe here.
  const shares = packages.map(one => 100 - (100 * price * one.credits) / (credits * one.price));
  return Math.floor(Math.max(...shares, 0) + 1e-9);
}

interface CardNotes {
  readonly pace: number | undefined;
  readonly saving: number;
  readonly isRecommended: boolean;
}

function packageCard(visit: Visit, sold: PackageOnSale, notes: CardNotes): VNode {
  const { words, formats } = visit;
  const { orders } = words;
  const { credits, price, currency } = sold;
  const { pace, saving, isRecommended } = notes;
  const count = formats.credits(credits);
  const lasts = pace && fill(orders.enoughFor, { time: lastingText(visit, credits, pace) });
  const label = pace === undefined ? orders.firstPackage : orders.recommended;
  return html`<li class=${`panel package${isRecommended ? ' recommended' : ''}`}>
    <p class="package-head"><b>${creditsText(visit, credits)}</b>
      ${isRecommended ? ui.badge(label, 'accent') : null}</p>
    <p class="figure">${moneyOf(formats, price, currency)}</p>
    <p class="soft"><span class="named">${unitLabel(words, sold)}</span>${unitPrice(visit, sold)}
      ${saving === 0 ? null : html` ${ui.badge(`\u2212${formats.share(saving / 100)}`, 'good')}`}</p>
    <p class="hint">${lasts}</p>
    <a class=${`button ${isRecommended ? 'primary' : 'secondary'}`} href=${ui.withQuery(REVIEW_PATH, { credits, price })}
      aria-label=${`${orders.order}: ${fill(orders.orderPackage, { count })}`}>${orders.order}</a>
  </li>`;
}

function creditsText({ language, words }: Visit, count: number): string {
  return counted(language, words.common.credits, count);
}

function unitLabel({ orders }: Words, { list }: PackageOnSale): string {
  return list === 'image' ? orders.perImage : orders.perCredit;
}

function unitPrice({ formats }: Visit, { unitPrice, currency }: PackageOnSale): string {
  return formats.money(Number(unitPrice), currency);
}
