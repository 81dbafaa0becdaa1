/** The person's password, sessions, language, and the account that they act for. */

import { randomUUID } from 'node:crypto';
import type { ActingPerson } from '@matting/accounts/audit-log.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import type { PeopleStore } from '../people/people-store.ts';
import { readCookie } from '../session/cookies.ts';
import { hashOfSecret } from '../session/secret.ts';
import type { ListedSession, SessionStore } from '../session/session-store.ts';
import { returnPathOf } from '../session/sign-in-path.ts';
import { formOf, PageError, type Visit, visitOf } from '../session/visit.ts';
import { isLanguage } from '../words/words.ts';
import type { KnownBrowsers } from './known-browsers.ts';
import { type PasswordFault, type Passwords, passwordFaultOf } from './passwords.ts';
import { keepKnown, throttledText } from './sign-in-pages.ts';
import type { SignInThrottle } from './sign-in-throttle.ts';

interface Self {
  readonly userId: string;
  readonly mail: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly actor: ActingPerson;
  /** After an operator's link, one change needs no current password. */
  readonly cameByLink: boolean;
}

type PasswordChange =
  /** @param known the new cookie of a known browser. The old one ended with the password. */
  | { readonly kind: 'changed'; readonly known: string }
  | { readonly kind: 'overtaken' }
  | { readonly kind: 'wrong' }
  | { readonly kind: 'bad-password'; readonly fault: PasswordFault }
  | { readonly kind: 'impossible' }
  | { readonly kind: 'throttled'; readonly waitMs: number };

interface ProfileParts {
  readonly people: Pick<PeopleStore, 'find' | 'setPassword'>;
  readonly passwords: Pick<Passwords, 'hash' | 'verify'>;
  readonly throttle: SignInThrottle;
  readonly browsers: Pick<KnownBrowsers, 'create'>;
}

export class Profile {
  readonly #parts: ProfileParts;

  constructor(parts: ProfileParts) {
    this.#parts = parts;
  }

  /** False: only an identity provider knows the person. */
  async mayHavePassword({ userId }: Pick<Self, 'userId'>): Promise<boolean> {
    return (await this.#parts.people.find(userId))?.hasMailKey ?? false;
  }

  /** Ends every other session of the person. @throws ContractError SERVICE_UNAVAILABLE */
  async changePassword(
    self: Self,
    given: { readonly current: string; readonly next: string },
  ): Promise<PasswordChange> {
    const { people, passwords, throttle, browsers } = this.#parts;
    const { userId, mail, sessionId, accountId, actor } = self;
    const person = await people.find(userId);
    if (person === undefined || !person.hasMailKey) return { kind: 'impossible' };
    const fault = await passwordFaultOf(given.next, mail);
    if (fault !== undefined) return { kind: 'bad-password', fault };
    // A stolen session must not allow faster guesses than sign-in.
    const attempt = { by: 'session', sessionId, address: actor.address } as const;
    const waitMs = await throttle.take(attempt);
    if (waitMs > 0) return { kind: 'throttled', waitMs };
    const verifiedHash = self.cameByLink ? null : person.passwordHash;
    if (!self.cameByLink) {
      const matches = await passwords.verify(given.current, verifiedHash, actor.address, userId);
      if (!matches) return { kind: 'wrong' };
    }
    const passwordHash = await passwords.hash(given.next, actor.address, userId);
    const by = { actor, entryId: randomUUID() };
    const set = { userId, passwordHash, verifiedHash, sessionId, accountId };
    const outcome = await people.setPassword(set, by);
    if (outcome !== 'set') return { kind: outcome };
    await throttle.giveBack(attempt);
    return { kind: 'changed', known: browsers.create({ userId, passwordHash }) };
  }
}

const SELF = { config: { permission: 'self' } } as const;

export function registerProfileRoutes(
  account: FastifyInstance,
  services: {
    readonly profile: Profile;
    readonly stores: { readonly people: PeopleStore; readonly sessions: SessionStore };
  },
): void {
  const { profile, stores } = services;
  account.get('/profile', SELF, (_request, reply) => renderProfile(reply, profile));
  account.post('/profile/password', SELF, async (request, reply) => {
    const form = formOf(request);
    const given = { current: form.text('current'), next: form.text('next') };
    const visit = visitOf(request);
    const self = { ...visit, cameByLink: visit.method === 'link' };
    const outcome = await profile.changePassword(self, given);
    const { profile: words } = visit.words;
    switch (outcome.kind) {
      case 'changed':
        keepKnown(reply, outcome.known);
        return reply.redirect(`${ACCOUNT_PATH}/profile?said=passwordChanged`, 303);
      case 'wrong':
        return renderProfile(reply, profile, { current: words.wrong });
      case 'bad-password':
        return renderProfile(reply, profile, { next: words.faults[outcome.fault] });
      case 'throttled': {
        const current = throttledText(reply, words.throttled, outcome.waitMs);
        return renderProfile(reply, profile, { current });
      }
      case 'overtaken':
        throw new PageError('staleForm');
      case 'impossible':
        throw new PageError('forbidden');
    }
  });
  account.post('/language', SELF, async (request, reply) => {
    const form = formOf(request);
    const language = form.text('language');
    if (!isLanguage(language)) throw new PageError('badForm');
    await stores.people.setLanguage(visitOf(request).userId, language);
    return reply.redirect(returnPathOf(form.text('back')) ?? ACCOUNT_PATH, 303);
  });
  account.post('/switch', SELF, async (request, reply) => {
    const secret = hashOfSecret(readCookie(request, 'session') ?? '');
    const isTheirs = await stores.sessions.switchAccount(secret, formOf(request).text('account'));
    if (!isTheirs) throw new PageError('notFound');
    return reply.redirect(ACCOUNT_PATH, 303);
  });
  registerSessionRoutes(account, stores.sessions);
}

function registerSessionRoutes(account: FastifyInstance, sessions: SessionStore) {
  account.get('/sessions', SELF, async (request, reply) => {
    const visit = visitOf(request);
    const { title, lead, notices } = visit.words.sessions;
    const main = sessionList(visit, await sessions.list(visit.userId));
    return renderPage(reply, { title, lead, notices, main });
  });
  account.post<{ Params: { id: string } }>('/sessions/:id/end', SELF, async (request, reply) => {
    const ended = await sessions.end(visitOf(request).userId, request.params.id);
    if (!ended) throw new PageError('notFound');
    return reply.redirect(`${ACCOUNT_PATH}/sessions?said=ended`, 303);
  });
  account.post('/sessions/end-others', SELF, async (request, reply) => {
    const { userId, sessionId } = visitOf(request);
    await sessions.endOthers(userId, sessionId);
    return reply.redirect(`${ACCOUNT_PATH}/sessions?said=othersEnded`, 303);
  });
}

function profileTabs({ words: { profile } }: Visit, active: 'profile' | 'sessions'): VNode {
  return ui.tabs(profile.tabs, [
    { href: '/account/profile', label: profile.profileTab, active: active === 'profile' },
    { href: '/account/sessions', label: profile.sessionsTab, active: active === 'sessions' },
  ]);
}

interface PasswordErrors {
  readonly current?: string;
  readonly next?: string;
}

async function renderProfile(reply: FastifyReply, service: Profile, errors: PasswordErrors = {}) {
  const visit = visitOf(reply.request);
  const mayHavePassword = await service.mayHavePassword(visit);
  const { profile, roles } = visit.words;
  return renderPage(reply, {
    title: profile.title,
    status: errors.current !== undefined || errors.next !== undefined ? 422 : 200,
    notices: profile.notices,
    main: html`<div>
      ${profileTabs(visit, 'profile')}
      ${ui.definitionList([
        [profile.mail, visit.mail],
        [profile.account, visit.accountName],
        [profile.role, roles[visit.role]],
      ])}
      ${ui.section(
        { title: profile.passwordTitle, lead: mayHavePassword ? profile.passwordLead : undefined },
        mayHavePassword ? passwordForm(visit, errors) : ui.panel(profile.byProvider),
      )}
    </div>`,
  });
}

function passwordForm({ words, csrf, mail, method }: Visit, errors: PasswordErrors): VNode {
  const { profile } = words;
  const asksForCurrent = method !== 'link';
  return ui.postForm(
    { action: '/account/profile/password', csrf, class: 'form panel' },
    html`<input type="email" name="mail" value=${mail} autocomplete="username" readonly hidden />`,
    asksForCurrent
      ? ui.textField({
          name: 'current',
          label: profile.current,
          type: 'password',
          error: errors.current,
          required: true,
          autocomplete: 'current-password',
          maxlength: 256,
        })
      : null,
    ui.textField({
      name: 'next',
      label: profile.next,
      type: 'password',
      hint: profile.nextHint,
      error: errors.next,
      required: true,
      autocomplete: 'new-password',
      minlength: 12,
      maxlength: 256,
    }),
    ui.button({ label: asksForCurrent ? profile.changePassword : profile.set }),
  );
}

function sessionList(visit: Visit, rows: readonly ListedSession[]): VNode {
  const { sessions } = visit.words;
  const endOthers = () =>
    ui.postForm(
      { action: '/account/sessions/end-others', csrf: visit.csrf, class: 'inline' },
      ui.button({
        label: sessions.endOthers,
        kind: 'danger',
        confirm: sessions.endOthersConfirm,
      }),
    );
  return html`<div class="stack">
    ${profileTabs(visit, 'sessions')}
    ${ui.dataTable({
      caption: sessions.title,
      columns: [
        sessions.browser,
        sessions.address,
        sessions.how,
        sessions.began,
        sessions.seen,
        { label: sessions.actions, silent: true },
      ],
      rows: rows.map(row => sessionCells(visit, row)),
    })}
    ${rows.some(({ id }) => id !== visit.sessionId) ? endOthers() : null}
  </div>`;
}

function sessionCells({ words, formats, csrf, sessionId }: Visit, row: ListedSession) {
  const { sessions } = words;
  const browser = browserOf(row.agent) ?? sessions.unknownBrowser;
  const time = ui.time(row.createdAtMs, formats.dateTime);
  const isThis = row.id === sessionId;
  return [
    html`<span title=${row.agent}>${browser}</span>${
      isThis ? html` ${ui.badge(sessions.this, 'accent')}` : null
    }`,
    html`<code>${row.address}</code>`,
    sessions.methods[row.method],
    time,
    ui.ago(row.seenAtMs, formats.dateTime),
    isThis
      ? null
      : ui.postForm(
          { action: `/account/sessions/${row.id}/end`, csrf, class: 'inline' },
          ui.button({
            label: html`${sessions.end} <span class="silent">${ui.phrase(sessions.endOf, { browser, time })}</span>`,
            kind: 'quiet',
          }),
        ),
  ];
}

/** The User-Agent of one browser often names others. The first in this order counts. */
const BROWSERS = [
  ['Edg/', 'Edge'],
  ['OPR/', 'Opera'],
  ['Firefox/', 'Firefox'],
  ['Chrome/', 'Chrome'],
  ['Safari/', 'Safari'],
] as const;
const SYSTEMS = [
  ['Android', 'Android'],
  ['iPhone', 'iOS'],
  ['iPad', 'iPadOS'],
  ['Windows', 'Windows'],
  ['Mac OS X', 'macOS'],
  ['Linux', 'Linux'],
] as const;

function browserOf(agent: string): string | undefined {
  const nameIn = (list: readonly (readonly [string, string])[]) =>
    list.find(([mark]) => agent.includes(mark))?.[1];
  const names = [nameIn(BROWSERS), nameIn(SYSTEMS)].filter(name => name !== undefined);
  return names.length === 0 ? undefined : names.join(', ');
}
