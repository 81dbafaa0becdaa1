import { ROTATION_OVERLAPS } from '@matting/accounts/keys/key-policy.ts';
import type { CoreServices } from '@matting/core/package.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { callBlocks } from '../documents/call-blocks.ts';
import { renderPage } from '../page/account-frame.ts';
import { type Child, DOCS_PATH, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { formOf, type Locale, PageError, queryOf, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import {
  type ApiKey,
  KEYS_PATH,
  keyForm,
  NEW_KEY,
  readKeyForm,
  type TypedKey,
  valuesOf,
} from './key-form.ts';

const READ = { config: { permission: 'keys.read' } } as const;
const MANAGE = { config: { permission: 'keys.manage' } } as const;

type KeyRequest = FastifyRequest<{ Params: { id: string } }>;

export function registerKeyRoutes(
  account: FastifyInstance,
  services: Pick<CoreServices, 'manageKeys' | 'models'> & Pick<MadeOptions, 'sendsMail'>,
  baseUrl: string,
) {
  const { manageKeys: keys, models, sendsMail } = services;
  const offered = () => models.list().models.map(({ name }) => name);
  const renderNew = (reply: FastifyReply, typed = NEW_KEY) => renderNewKey(reply, offered(), typed);
  const showKey = (request: KeyRequest, reply: FastifyReply, typed?: TypedKey) =>
    renderKey(request, reply, keys, offered(), typed);
  account.get('/keys', READ, async (request, reply) => {
    const visit = visitOf(request);
    const after = queryOf(request, 'after');
    const page = await keys.list(visit.accountId, keyCursorOf(after));
    const { next } = page;
    const { words, role } = visit;
    const mayManage = may(role, 'keys.manage');
    return renderPage(reply, {
      title: words.keys.title,
      lead: words.keys.lead,
      active: 'keys',
      ...(mayManage && page.keys.length > 0 ? { actions: createLink(words.keys.create) } : {}),
      main: html`<div class="stack">
        ${keyTable(visit, page.keys)}
        ${ui.pager(words.common, KEYS_PATH, { after, next: next && `${next.createdAtMs}-${next.id}` })}
      </div>`,
    });
  });
  account.get('/keys/new', MANAGE, (_request, reply) => renderNew(reply));
  account.post('/keys', MANAGE, async (request, reply) => {
    const { accountId, actor, words } = visitOf(request);
    const { parsed, ...typed } = readKeyForm(formOf(request), words, true);
    if (parsed === undefined) return renderNew(reply, typed);
    const { name, expires, policy } = parsed;
    const expiresIn = typeof expires === 'object' ? { expiresInMs: expires.inMs } : {};
    const made = await keys.create(accountId, { name, policy, ...expiresIn }, actor);
    if (made === 'too-many') {
      const errors = { name: words.keys.errors.tooMany };
      return renderNew(reply, { ...typed, errors });
    }
    return renderMade(reply, made, { rotated: false, baseUrl, sendsMail });
  });
  account.get('/keys/:id', READ, (request: KeyRequest, reply) => showKey(request, reply));
  account.post('/keys/:id', MANAGE, async (request: KeyRequest, reply) => {
    const { accountId, actor, words } = visitOf(request);
    const { parsed, ...typed } = readKeyForm(formOf(request), words, false);
    if (parsed === undefined) return showKey(request, reply, typed);
    const { expires, ...rest } = parsed;
    const change = { ...rest, ...(expires === 'keep' ? {} : { expires }) };
    const changed = await keys.change(accountId, request.params.id, change, actor);
    if (changed === undefined) throw new PageError('notFound');
    return reply.redirect(`${KEYS_PATH}/${changed.id}?said=changed`, 303);
  });
  account.post('/keys/:id/rotate', MANAGE, async (request: KeyRequest, reply) => {
    const overlap = formOf(request).text('overlap');
    if (!isOverlap(overlap)) throw new PageError('badForm');
    const { accountId, actor } = visitOf(request);
    const made = await keys.rotate(accountId, request.params.id, overlap, actor);
    if (made === undefined) throw new PageError('notFound');
    return renderMade(reply, made, { rotated: true, baseUrl, sendsMail });
  });
  account.post('/keys/:id/revoke', MANAGE, async (request: KeyRequest, reply) => {
    const { accountId, actor } = visitOf(request);
    const revoked = await keys.revoke(accountId, request.params.id, actor);
    if (revoked === undefined) throw new PageError('notFound');
    return reply.redirect(`${KEYS_PATH}/${revoked.id}?said=revoked`, 303);
  });
}

function keyTable(visit: Visit, rows: readonly ApiKey[]): VNode {
  const { words, formats, role } = visit;
  const { keys, common } = words;
  return ui.dataTable({
    caption: keys.caption,
    columns: [keys.name, keys.key, keys.state, keys.lastUsed, keys.expires, keys.cap, keys.scopes],
    rows: rows.map(row => [
      html`<a href=${`/account/keys/${row.id}`}>${row.name}</a>`,
      html`<code>${row.prefix}</code>`,
      stateBadge(row, words),
      ui.ago(row.lastUsedAtMs, formats.dateTime, common.never),
      ui.time(row.expiresAtMs, formats.date, keys.expiry.never),
      capText(row, visit) ?? common.none,
      scopesText(row.policy.scopes, words),
    ]),
    empty: ui.emptyState({
      title: keys.empty,
      text: keys.emptyText,
      action: may(role, 'keys.manage') ? createLink(keys.create) : null,
    }),
  });
}

function createLink(label: string): VNode {
  return html`<a class="button primary" href="/account/keys/new">${label}</a>`;
}

function renderNewKey(reply: FastifyReply, offered: readonly string[], typed: TypedKey) {
  const visit = visitOf(reply.request);
  const { keys } = visit.words;
  return renderPage(reply, {
    title: keys.newTitle,
    lead: keys.newLead,
    active: 'keys',
    back: { href: KEYS_PATH, label: keys.title },
    status: Object.keys(typed.errors).length > 0 ? 422 : 200,
    main: keyForm(visit, offered, typed),
  });
}

async function renderKey(
  request: KeyRequest,
  reply: FastifyReply,
  manageKeys: CoreServices['manageKeys'],
  offered: readonly string[],
  typed?: TypedKey,
): Promise<FastifyReply> {
  const visit = visitOf(request);
  const row = await manageKeys.find(visit.accountId, request.params.id);
  if (row === undefined) throw new PageError('notFound');
  const { keys } = visit.words;
  const mayChange = may(visit.role, 'keys.manage') && row.state !== 'revoked';
  const form = typed ?? { values: valuesOf(row), errors: {} };
  return renderPage(reply, {
    title: row.name,
    active: 'keys',
    back: { href: KEYS_PATH, label: keys.title },
    status: typed === undefined ? 200 : 422,
    notices: keys.notices,
    main: html`<div>
      ${facts(visit, row)}
      ${
        mayChange
          ? [
              ui.fold(
                { label: keys.edit, isOpen: typed !== undefined },
                keyForm(visit, offered, form, row),
              ),
              rotation(visit, row),
              revocation(visit, row),
            ]
          : null
      }
    </div>`,
  });
}

interface MadeOptions {
  readonly rotated: boolean;
  readonly baseUrl: string;
  readonly sendsMail: boolean;
}

/** The only page that shows a secret. */
function renderMade(
  reply: FastifyReply,
  { key, token }: { readonly key: ApiKey; readonly token: string },
  { rotated, baseUrl, sendsMail }: MadeOptions,
): FastifyReply {
  const { words, formats } = visitOf(reply.request);
  const { keys, common } = words;
  const { policy, previousSecret } = key;
  const maySubmit = policy.scopes === undefined || policy.scopes.includes('submit');
  const oldSecret =
    previousSecret === null
      ? keys.oldEnded
      : ui.phrase(keys.oldUntil, { time: ui.time(previousSecret.endsAtMs, formats.dateTime) });
  const tryIt = () =>
    ui.panel(
      html`<p>${keys.tryIt}</p>`,
      callBlocks({ baseUrl, apiKey: token }, common, keys.tryLabel),
    );
  return renderPage(reply, {
    title: rotated ? keys.rotatedTitle : keys.madeTitle,
    active: 'keys',
    back: { href: KEYS_PATH, label: keys.title },
    main: html`<div class="stack">
      ${ui.notice(
        'good',
        html`<p>${rotated ? keys.rotated : keys.made}</p>
        ${ui.codeBlock(token, common, keys.madeLabel)}`,
      )}
      ${rotated ? html`<p>${oldSecret}</p>` : null}
      <p>${endOf(key, sendsMail, visitOf(reply.request))}</p>
      ${maySubmit ? tryIt() : null}
      <p class="actions">
        ${ui.linkButton({ href: `/account/keys/${key.id}`, label: keys.toKey })}
        ${ui.linkButton({ href: '/account/keys', label: keys.toKeys })}
        ${ui.linkButton({ href: DOCS_PATH, label: words.nav.docs })}
      </p>
    </div>`,
  });
}

function endOf({ expiresAtMs }: ApiKey, sendsMail: boolean, { words, formats }: Locale): Child {
  const { keys } = words;
  if (expiresAtMs === null) return keys.endsNever;
  return ui.phrase(sendsMail ? keys.endsOn : keys.endsUnsaid, {
    time: ui.time(expiresAtMs, formats.dateTime),
  });
}

function isOverlap(text: string): text is keyof typeof ROTATION_OVERLAPS {
  return Object.hasOwn(ROTATION_OVERLAPS, text);
}

function keyCursorOf(after: unknown) {
  if (after === undefined) return undefined;
  const [, createdAtMs, id] = /^(\d{1,15})-([0-9A-Za-z]{12})$/.exec(String(after)) ?? [];
  if (createdAtMs === undefined || id === undefined) throw new PageError('badForm');
  return { id, createdAtMs: Number(createdAtMs) };
}

function facts(visit: Visit, row: ApiKey): VNode {
  const { words, formats } = visit;
  const { keys, common } = words;
  const { policy, capUse, previousSecret } = row;
  const reset = capUse?.resetsAtMs ?? null;
  const cap = capText(row, visit);
  const rate = policy.submissionsPerMinute;
  return ui.definitionList([
    [keys.key, ui.copyable(row.prefix, common)],
    [keys.state, stateBadge(row, words)],
    [keys.created, ui.time(row.createdAtMs, formats.dateTime)],
    [keys.lastUsed, ui.time(row.lastUsedAtMs, formats.dateTime, common.never)],
    [keys.expires, ui.time(row.expiresAtMs, formats.dateTime, keys.expiry.never)],
    [keys.revokedAt, ui.time(row.revokedAtMs, formats.dateTime)],
    [keys.previous, previousSecret && previousText(previousSecret, visit)],
    [keys.limits, Object.keys(policy).length === 0 ? common.none : null],
    [
      keys.cap,
      cap !== null && reset !== null
        ? html`${cap}<div class="soft">${ui.phrase(keys.capReset, { time: ui.time(reset, formats.dateTime) })}</div>`
        : cap,
    ],
    [keys.rate, rate === undefined ? null : formats.credits(rate)],
    [keys.scopes, policy.scopes && scopesText(policy.scopes, words)],
    [keys.models, policy.models?.join(', ')],
    [keys.networks, policy.networks?.map(network => html`<div><code>${network}</code></div>`)],
  ]);
}

function stateBadge(key: ApiKey, { keys }: Words): Child {
  if (key.state === 'revoked') return ui.badge(keys.states.revoked, 'bad');
  if (key.state === 'expired') return ui.badge(keys.states.expired, 'warning');
  if (key.previousSecret !== null) return ui.badge(keys.states.rotating, 'accent');
  return ui.badge(keys.states.active, 'good');
}

/** `12 of 1,000, every day`. Null: the key has no cap. */
function capText({ policy, capUse }: ApiKey, { words, formats }: Locale): string | null {
  const { cap } = policy;
  if (cap === undefined) return null;
  const { keys } = words;
  const use = fill(keys.capUse, {
    used: formats.credits(capUse?.used ?? 0),
    credits: formats.credits(cap.credits),
  });
  return cap.period === 'total' ? use : fill(keys.capUsePeriods[cap.period], { use });
}

function scopesText(scopes: ApiKey['policy']['scopes'], { keys }: Words): Child {
  return scopes?.map(scope => html`<div>${keys.scopeNames[scope]}</div>`) ?? keys.allScopes;
}

function previousText(
  { endsAtMs, lastUsedAtMs }: NonNullable<ApiKey['previousSecret']>,
  { words: { keys }, formats }: Locale,
): Child {
  const used =
    lastUsedAtMs === null
      ? keys.previousUnused
      : ui.phrase(keys.previousUsed, { time: ui.time(lastUsedAtMs, formats.dateTime) });
  const until = ui.phrase(keys.previousUntil, { time: ui.time(endsAtMs, formats.dateTime) });
  return html`${until}<div class="soft">${used}</div>`;
}

function rotation({ words, formats, csrf }: Visit, { id, name, previousSecret }: ApiKey): VNode {
  const { keys } = words;
  const hints: Readonly<Record<string, string>> = keys.overlapHints;
  return ui.section(
    { title: keys.rotateTitle, lead: keys.rotateLead },
    ui.postForm(
      { action: `/account/keys/${id}/rotate`, csrf, class: 'form panel' },
      previousSecret === null
        ? null
        : html`<p>${ui.phrase(keys.rotateAgain, {
            time: ui.time(previousSecret.endsAtMs, formats.dateTime),
          })}</p>`,
      ui.radioGroup({
        name: 'overlap',
        label: keys.overlap,
        value: '24h',
        options: Object.entries(keys.overlaps).map(([value, label]) => {
          return { value, label, hint: hints[value] };
        }),
      }),
      ui.actions(
        ui.button({
          label: keys.rotate,
          kind: 'secondary',
          confirm: fill(keys.rotateConfirm, { name }),
        }),
      ),
    ),
  );
}

function revocation({ words, formats, csrf }: Visit, { id, name, lastUsedAtMs }: ApiKey): VNode {
  const { keys } = words;
  const used =
    lastUsedAtMs === null
      ? keys.revokeUnused
      : ui.phrase(keys.revokeUsed, { time: ui.time(lastUsedAtMs, formats.dateTime) });
  return ui.section(
    { title: keys.revokeTitle, lead: keys.revokeLead },
    ui.postForm(
      { action: `/account/keys/${id}/revoke`, csrf, class: 'form panel' },
      html`<p>${used}</p>`,
      ui.actions(
        ui.button({
          label: keys.revoke,
          kind: 'danger',
          confirm: fill(keys.revokeConfirm, { name }),
        }),
      ),
    ),
  );
}
