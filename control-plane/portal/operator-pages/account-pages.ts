import { randomUUID } from 'node:crypto';
import {
  CREDITS_AMOUNT_MAX,
  isCreditAmount,
  isLedgerReference,
} from '@matting/accounts/ledger/ledger.ts';
import type { OperatorServices } from '@matting/core/http/app-services.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { html } from '../page/html.ts';
import {
  operatorVisitOf,
  PAGES_PATH,
  queryValue,
  renderOperatorPage,
} from '../page/operator-frame.ts';
import * as ui from '../page/ui.ts';
import { formOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';

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

type OperatorAccount = Awaited<ReturnType<OperatorServices['operateAccounts']['show']>>;

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
        // A double click sends the form twice. This enters the grant once.
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
  const notice = kind === 'grant' ? 'granted' : 'revoked';
  const code = outcome.kind === 'entered' ? notice : 'alreadyEntered';
  return reply.redirect(`${ACCOUNTS_PATH}/${encodeURIComponent(account)}?said=${code}`, 303);
}
