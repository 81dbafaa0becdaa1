import type { CoreStores } from '@matting/core/package.ts';
import type { FastifyInstance } from 'fastify';
import { moneyOf } from '../orders/order-pages.ts';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import { cursorText, pageOf, parseCursor } from '../page/paging.ts';
import * as ui from '../page/ui.ts';
import { isRole } from '../session/roles.ts';
import { type Locale, queryOf, type Visit, visitOf } from '../session/visit.ts';
import { counted, type Words } from '../words/words.ts';

type AuditRecord = Awaited<ReturnType<CoreStores['audit']['list']>>[number];

const AUDIT_PATH = `${ACCOUNT_PATH}/audit`;
const AUDIT_ROWS = 50;
const CHANGES_SHOWN_MAX = 2;

export function registerAuditRoute(
  account: FastifyInstance,
  { stores }: { readonly stores: Pick<CoreStores, 'audit'> },
): void {
  account.get('/audit', { config: { permission: 'audit.read' } }, async (request, reply) => {
    const visit = visitOf(request);
    const { audit, common } = visit.words;
    // A malformed cursor gives the first page.
    const after = parseCursor(String(queryOf(request, 'after')));
    const found = await stores.audit.list(visit.accountId, { limit: AUDIT_ROWS + 1, after });
    const { rows, last } = pageOf(found, AUDIT_ROWS);
    return renderPage(reply, {
      title: audit.title,
      lead: audit.lead,
      active: 'audit',
      main: html`<div class="stack">
        ${auditTable(visit, rows)}
        ${ui.pager(common, AUDIT_PATH, { after, next: last && cursorText(last) })}
      </div>`,
    });
  });
}

function auditTable(visit: Visit, rows: readonly AuditRecord[]): Child {
  const { words, formats } = visit;
  const { audit } = words;
  return ui.dataTable({
    caption: audit.title,
    columns: [audit.time, audit.what, audit.who, audit.change],
    rows: rows.map(row => [
      ui.ago(row.atMs, formats.exactTime),
      html`${actionIn(audit, row.action)}<div class="soft address">${entrySubject(row.subject)}</div>`,
      html`<span class="address">${row.mail ?? audit.actors[row.actorKind]}</span>${
        row.address === null ? null : html`<div class="soft address">${row.address}</div>`
      }`,
      changes(visit, row),
    ]),
    empty: ui.emptyState({ title: audit.empty }),
  });
}

function actionIn({ actions }: Words['audit'], action: string): Child {
  const isKnown = Object.hasOwn(actions, action);
  return isKnown ? actions[action as keyof typeof actions] : html`<code>${action}</code>`;
}

const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/;

function entrySubject(subject: string): Child {
  if (!UUID.test(subject)) return subject;
  return html`<code title=${subject}>${subject.slice(0, 8)}</code>`;
}

function changes(visit: Visit, record: AuditRecord): Child {
  const lines = changesOf(visit, record);
  if (lines.length === 0) return null;
  const list = html`<dl class="changes">${lines.map(
    ([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`,
  )}</dl>`;
  if (lines.length <= CHANGES_SHOWN_MAX) return list;
  const { language, words } = visit;
  return html`<details>
    <summary>${counted(language, words.audit.details, lines.length)}</summary>${list}
  </details>`;
}

/** Sums show their currency, so it has no line of its own. */
const SUMS = new Set(['price', 'amount']);

function changesOf(locale: Locale, { before, after }: AuditRecord): [string, Child][] {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  const hasSum = [...names].some(name => SUMS.has(name));
  const changed = [...names].filter(
    name =>
      (before?.[name] ?? null) !== (after?.[name] ?? null) && !(hasSum && name === 'currency'),
  );
  const { values } = locale.words.audit;
  return changed.map(name => {
    const label = Object.hasOwn(values, name)
      ? values[name as keyof typeof values]
      : name.replaceAll('_', ' ');
    const [was, is] = [before, after].map(all => valueIn(locale, name, all));
    if (was === null || after === null) return [label, is ?? was];
    return [label, html`${was} → ${is ?? locale.words.common.none}`];
  });
}

const INSTANT = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

function valueIn({ words, formats }: Locale, name: string, values: AuditRecord['after']): Child {
  const value = values?.[name] ?? null;
  const currency = values?.currency;
  if (value === null) return null;
  if (typeof value === 'boolean') return value ? words.common.yes : words.common.no;
  if (typeof value === 'number') {
    if (!SUMS.has(name) || typeof currency !== 'string') return formats.credits(value);
    return moneyOf(formats, value, currency);
  }
  if (name === 'role' && isRole(value)) return words.roles[value];
  return INSTANT.test(value) ? ui.time(value, formats.dateTime) : value;
}
