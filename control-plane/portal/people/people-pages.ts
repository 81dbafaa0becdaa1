import { randomUUID } from 'node:crypto';
import type { CoreServices } from '@matting/core/package.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { parseMail } from '../mails/mail-address.ts';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { isRole, ROLES } from '../session/roles.ts';
import { formOf, PageError, queryOf, type Visit, visitOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';
import type { Invitations } from './invitations.ts';
import type { LinkStore, OpenLink } from './link-store.ts';
import type { Member, MemberChange, PeopleStore } from './people-store.ts';

const MANAGE = { config: { permission: 'people.manage' } } as const;
const PEOPLE_PATH = `${ACCOUNT_PATH}/people`;

interface PeopleServices {
  readonly stores: {
    readonly people: PeopleStore;
    readonly links: LinkStore;
  };
  readonly invitations: Invitations;
  readonly manageKeys: CoreServices['manageKeys'];
}

type PeopleRequest = FastifyRequest<{ Params: { id: string } }>;

export function registerPeopleRoutes(account: FastifyInstance, services: PeopleServices) {
  const { stores, manageKeys } = services;
  account.get('/people', MANAGE, (request, reply) => {
    const removed = queryOf(request, 'removed');
    return renderPeople(reply, services, typeof removed === 'string' ? { removed } : {});
  });
  account.post('/people/invite', MANAGE, (_request, reply) => invite(reply, services));
  account.post('/people/:id/role', MANAGE, async (request: PeopleRequest, reply) => {
    const role = formOf(request).text('role');
    if (!isRole(role)) throw new PageError('badForm');
    const { accountId, ...by } = changeOf(request);
    const change = await stores.people.changeRole(accountId, request.params.id, role, by);
    return answerChange(reply, services, change, 'roleChanged');
  });
  account.post('/people/:id/remove', MANAGE, async (request: PeopleRequest, reply) => {
    const { accountId, ...by } = changeOf(request);
    const change = await stores.people.removeMember(accountId, request.params.id, by);
    // The member's API keys stay valid, so the page shows them.
    const removed = encodeURIComponent(request.params.id);
    return answerChange(reply, services, change, `removed&removed=${removed}`);
  });
  account.post('/people/:id/revoke-keys', MANAGE, async (request: PeopleRequest, reply) => {
    const { accountId, actor } = visitOf(request);
    const revoked = await manageKeys.revokeMadeBy(accountId, request.params.id, actor);
    if (!revoked) throw new PageError('notFound');
    return reply.redirect(`${PEOPLE_PATH}?said=keysRevoked`, 303);
  });
  account.post('/people/invitations/:id/resend', MANAGE, (request: PeopleRequest, reply) =>
    resend(request, reply, services),
  );
  account.post(
    '/people/invitations/:id/withdraw',
    MANAGE,
    async (request: PeopleRequest, reply) => {
      const { accountId, ...by } = changeOf(request);
      const withdrawn = await stores.links.withdraw(accountId, request.params.id, by);
      if (!withdrawn) throw new PageError('notFound');
      return reply.redirect(`${PEOPLE_PATH}?said=withdrawn`, 303);
    },
  );
}

function changeOf(request: FastifyRequest) {
  const { accountId, actor } = visitOf(request);
  return { accountId, actor, entryId: randomUUID() };
}

/** The link is either on this answer or in the mail, and nowhere else. */
async function invite(reply: FastifyReply, services: PeopleServices) {
  const { request } = reply;
  const form = formOf(request);
  const given = { mail: form.text('mail'), role: form.text('role') };
  const { accountId, accountName, actor, words } = visitOf(request);
  const { people } = words;
  const mail = parseMail(given.mail);
  const role = isRole(given.role) ? given.role : undefined;
  if (mail === undefined || role === undefined) {
    const errors = {
      mail: mail === undefined ? people.badMail : undefined,
      role: role === undefined ? people.badRole : undefined,
    };
    return renderPeople(reply, services, { typed: { ...given, errors } });
  }
  const made = await services.invitations.invite(accountId, { mail, role, accountName }, actor);
  if (typeof made === 'string') {
    const errors = { mail: people.refusedInvitation[made] };
    return renderPeople(reply, services, { typed: { ...given, errors } });
  }
  return renderPeople(reply, services, { made: { mail, ...made } });
}

/** The earlier link ends once the new one exists. */
async function resend(request: PeopleRequest, reply: FastifyReply, services: PeopleServices) {
  const { accountName, words } = visitOf(request);
  const { accountId, ...by } = changeOf(request);
  const open = await services.stores.links.listOpen(accountId);
  const old = open.find(({ id, purpose }) => {
    return id === request.params.id && purpose === 'invitation';
  });
  if (old === undefined) throw new PageError('notFound');
  const { id, mail, role } = old;
  const made = await services.invitations.invite(accountId, { mail, role, accountName }, by.actor);
  if (typeof made === 'string') {
    return renderPeople(reply, services, { problem: words.people.refusedInvitation[made] });
  }
  await services.stores.links.withdraw(accountId, id, by);
  return renderPeople(reply, services, { made: { mail, ...made } });
}

function answerChange(
  reply: FastifyReply,
  services: PeopleServices,
  change: MemberChange,
  notice: string,
): FastifyReply | Promise<FastifyReply> {
  if (change === 'changed') return reply.redirect(`${PEOPLE_PATH}?said=${notice}`, 303);
  if (change === 'unknown') throw new PageError('notFound');
  const problem = visitOf(reply.request).words.people.refused[change];
  return renderPeople(reply, services, { problem });
}

interface Shown {
  readonly typed?: {
    readonly mail: string;
    readonly role: string;
    readonly errors: { readonly mail?: string | undefined; readonly role?: string | undefined };
  };
  readonly made?: {
    readonly mail: string;
    readonly url: string | undefined;
    readonly lifeMs: number;
  };
  readonly problem?: string;
  readonly removed?: string;
}

async function renderPeople(
  reply: FastifyReply,
  { stores, invitations: { byMail }, manageKeys }: PeopleServices,
  { removed, typed, made, problem }: Shown,
): Promise<FastifyReply> {
  const visit = visitOf(reply.request);
  const { accountId } = visit;
  const rows = await stores.people.listMembers(accountId);
  const open = await stores.links.listOpen(accountId);
  const isGone = removed !== undefined && !rows.some(row => row.userId === removed);
  const keysLeft = isGone ? await manageKeys.listMadeBy(accountId, removed) : [];
  const { people } = visit.words;
  const invitations = open.filter(({ purpose }) => purpose === 'invitation');
  const signInLinks = open.filter(({ purpose }) => purpose === 'sign-in');
  const lead = byMail ? people.inviteLeadByMail : people.inviteLead;
  return renderPage(reply, {
    title: people.title,
    lead: people.lead,
    active: 'people',
    status: typed !== undefined || problem !== undefined ? 422 : 200,
    notices: people.notices,
    main: html`<div>
      ${problem === undefined ? null : ui.notice('bad', problem)}
      ${made === undefined ? null : madeLink(visit, made)}
      ${keysLeft.length === 0 ? null : keysNotice(visit, removed ?? '', keysLeft)}
      ${memberTable(visit, rows)}
      ${ui.fold(
        { label: people.inviteTitle, kind: 'primary', isOpen: typed !== undefined },
        html`<p class="lead">${lead}</p>`,
        inviteForm(visit, typed),
      )}
      ${
        invitations.length === 0
          ? null
          : ui.section(
              { title: people.invitations },
              linkTable(visit, invitations, people.invitations, byMail),
            )
      }
      ${
        signInLinks.length === 0
          ? null
          : ui.section(
              { title: people.signInLinks, lead: people.signInLinksLead },
              linkTable(visit, signInLinks, people.signInLinks),
            )
      }
    </div>`,
  });
}

function madeLink({ words, formats }: Visit, { mail, url, lifeMs }: NonNullable<Shown['made']>) {
  const { people, common } = words;
  const time = ui.time(Date.now() + lifeMs, formats.dateTime);
  if (url === undefined) return ui.notice('good', ui.phrase(people.sent, { mail, time }));
  return ui.notice(
    'good',
    html`<p>${ui.phrase(people.link, { mail, time })}</p>
      ${ui.codeBlock(url, common, people.linkLabel)}`,
  );
}

function keysNotice(
  { words, csrf }: Visit,
  userId: string,
  keys: readonly { readonly name: string; readonly prefix: string }[],
): VNode {
  const { people } = words;
  return ui.notice(
    'warning',
    html`<p>${people.keysLiveOn}</p>
      <ul>${keys.map(key => html`<li>${key.name} <code>${key.prefix}</code></li>`)}</ul>
      ${ui.postForm(
        { action: `${PEOPLE_PATH}/${userId}/revoke-keys`, csrf, class: 'inline' },
        ui.button({ label: people.revokeKeys, kind: 'danger', confirm: people.revokeKeysConfirm }),
      )}`,
  );
}

function memberTable(visit: Visit, members: readonly Member[]): VNode {
  const { people } = visit.words;
  return ui.dataTable({
    caption: people.title,
    columns: [people.mail, people.role, people.since, { label: people.actions, silent: true }],
    rows: members.map(row => memberCells(visit, row)),
  });
}

function memberCells({ words, formats, csrf, userId: own }: Visit, row: Member): Child[] {
  const { people, roles } = words;
  const { mail, userId } = row;
  const byGroup = row.source === 'oidc';
  const isSelf = userId === own;
  return [
    html`<span class="address">${mail}</span>${isSelf ? html` ${ui.badge(people.you, 'accent')}` : null}${
      row.isProven ? null : html` <span class="hint">${people.unproven}</span>`
    }`,
    byGroup || isSelf
      ? html`${roles[row.role]}${byGroup ? html` <span class="hint">${people.byGroup}</span>` : null}`
      : ui.postForm(
          { action: `${PEOPLE_PATH}/${userId}/role`, csrf, class: 'inline' },
          html`<select name="role" id=${`role-${userId}`}
            aria-label=${fill(people.roleOf, { mail })}>
            ${ROLES.map(
              role =>
                html`<option value=${role} selected=${role === row.role}>${roles[role]}</option>`,
            )}
          </select>`,
          ui.button({
            label: people.change,
            kind: 'secondary',
            describe: fill(people.changeOf, { mail }),
          }),
        ),
    ui.time(row.createdAtMs, formats.date),
    byGroup || isSelf
      ? null
      : ui.postForm(
          { action: `${PEOPLE_PATH}/${userId}/remove`, csrf, class: 'inline' },
          ui.button({
            label: people.remove,
            kind: 'quiet',
            describe: fill(people.removeOf, { mail }),
            confirm: fill(people.removeConfirm, { mail }),
          }),
        ),
  ];
}

function inviteForm({ words, csrf }: Visit, typed: Shown['typed']): VNode {
  const { people, roles } = words;
  const options = ROLES.map(role => {
    return { value: role, label: roles[role], hint: people.roleHints[role] };
  });
  return ui.postForm(
    { action: `${PEOPLE_PATH}/invite`, csrf },
    ui.textField({
      name: 'mail',
      label: people.mail,
      type: 'email',
      value: typed?.mail ?? '',
      error: typed?.errors.mail,
      required: true,
      maxlength: 254,
      autocomplete: 'off',
    }),
    ui.radioGroup({
      name: 'role',
      label: people.role,
      value: typed?.role ?? 'member',
      error: typed?.errors.role,
      options,
    }),
    ui.button({ label: people.invite }),
  );
}

function linkTable(
  { words, formats, csrf }: Visit,
  links: readonly OpenLink[],
  caption: string,
  byMail?: boolean,
) {
  const { people, roles } = words;
  return ui.dataTable({
    caption,
    columns: [
      people.mail,
      people.role,
      people.invitedBy,
      people.until,
      { label: people.actions, silent: true },
    ],
    rows: links.map(({ id, purpose, mail, role, createdBy, expiresAtMs }) => {
      const label = purpose === 'invitation' ? people.withdrawOf : people.withdrawLinkOf;
      return [
        mail,
        roles[role],
        createdBy === 'operator' ? people.operator : createdBy,
        ui.time(expiresAtMs, formats.dateTime),
        html`<div class="actions">
          ${
            byMail === undefined
              ? null
              : ui.postForm(
                  { action: `${PEOPLE_PATH}/invitations/${id}/resend`, csrf, class: 'inline' },
                  ui.button({
                    label: byMail ? people.resend : people.newLink,
                    kind: 'secondary',
                    describe: fill(byMail ? people.resendOf : people.newLinkOf, { mail }),
                  }),
                )
          }
          ${ui.postForm(
            { action: `${PEOPLE_PATH}/invitations/${id}/withdraw`, csrf, class: 'inline' },
            ui.button({ label: people.withdraw, kind: 'quiet', describe: fill(label, { mail }) }),
          )}
        </div>`,
      ];
    }),
  });
}
