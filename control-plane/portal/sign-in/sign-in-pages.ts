import { headerValues } from '@matting/http/request-headers.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { mailKeyOf } from '../mails/mail-address.ts';
import { renderPage } from '../page/account-frame.ts';
import { button, linkButton } from '../page/buttons.ts';
import { postForm, textField } from '../page/forms.ts';
import { ACCOUNT_PATH, DOCS_PATH, html } from '../page/html.ts';
import { notice } from '../page/sections.ts';
import { demoStage } from '../page/stage.ts';
import type { Invitations } from '../people/invitations.ts';
import type { FoundLink } from '../people/link-store.ts';
import { clearCookie, readCookie, setCookie } from '../session/cookies.ts';
import { csrfTokenOf } from '../session/form-token.ts';
import { createSecret, isSecret } from '../session/secret.ts';
import { type Browser, SESSION_MS, type SessionStore } from '../session/session-store.ts';
import { returnPathOf, SIGN_IN_PATH, signInPathTo } from '../session/sign-in-path.ts';
import {
  formOf,
  localeOf,
  maybeCsrf,
  maybeSignedIn,
  PageError,
  queryOf,
  visitOf,
} from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import { OpenIdError, type OpenIdFlow } from './open-id-connect.ts';
import type { ProviderSignIn } from './provider-sign-in.ts';
import type { Entered, SignIn } from './sign-in.ts';
import type { AcceptOutcome, UseLinks } from './use-links.ts';

const OPEN = { config: { public: true } } as const;
/** Longer than any stored password. */
const PASSWORD_LENGTH_MAX = 1024;
const DAY_S = 86_400;
/** How long a browser stays known after the last sign-in. */
const KNOWN_S = 180 * DAY_S;
/** Enough for a sign-in at the identity provider with a second factor. */
const FLOW_S = 600;

export function registerSignInRoutes(
  account: FastifyInstance,
  services: {
    readonly signIn: SignIn;
    readonly provider: ProviderSignIn | undefined;
    readonly links: UseLinks;
    readonly invitations: Pick<Invitations, 'byMail'>;
    readonly stores: { readonly sessions: SessionStore };
  },
): void {
  const { signIn, provider, links, stores } = services;
  const { byMail } = services.invitations;
  account.get('/sign-in', OPEN, (request, reply) => {
    const to = returnPathOf(queryOf(request, 'to'));
    if (maybeSignedIn(request) !== undefined) return reply.redirect(to ?? ACCOUNT_PATH, 303);
    return renderSignIn(reply, { to, provider, byMail });
  });
  account.post('/sign-in', OPEN, async (request, reply) => {
    const form = formOf(request);
    const mail = form.text('mail');
    const password = form.text('password');
    const to = returnPathOf(form.text('to'));
    const outcome =
      password.length > PASSWORD_LENGTH_MAX
        ? ({ kind: 'refused' } as const)
        : await signIn.withPassword({ mail, password }, browserOf(request));
    request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in');
    if (outcome.kind !== 'signed-in') {
      return renderRefusedSignIn(reply, outcome, { to, mail, provider, byMail });
    }
    letIn(reply, outcome);
    return reply.redirect(to ?? ACCOUNT_PATH, 303);
  });
  account.post('/sign-out', { config: { permission: 'self' } }, async (request, reply) => {
    const { userId, sessionId } = visitOf(request);
    await stores.sessions.end(userId, sessionId);
    clearCookie(reply, 'session');
    return reply.redirect(`${SIGN_IN_PATH}?said=signedOut`, 303);
  });
  if (provider !== undefined) registerProviderRoutes(account, provider, byMail);
  registerLinkRoutes(account, links);
}

function browserOf(request: FastifyRequest): Browser {
  const secret = readCookie(request, 'session');
  return {
    address: request.ip,
    agent: request.headers['user-agent'] ?? '',
    sessionSecret: secret !== undefined && isSecret(secret) ? secret : undefined,
    known: readCookie(request, 'device'),
  };
}

/** The secret is new with every sign-in, so a planted one is useless. */
function letIn(reply: FastifyReply, { secret, known }: Entered): void {
  setCookie(reply, 'session', secret, SESSION_MS / 1000);
  if (known !== undefined) keepKnown(reply, known);
  clearCookie(reply, 'visitor');
}

export function keepKnown(reply: FastifyReply, known: string): void {
  setCookie(reply, 'device', known, KNOWN_S);
}

/** The token of forms that visitors see too, from their session or the visitors' cookie. */
function csrfOfVisitor(reply: FastifyReply): string {
  const { request } = reply;
  const csrf = maybeCsrf(request);
  if (csrf !== undefined) return csrf;
  const given = readCookie(request, 'visitor');
  const secret = given !== undefined && isSecret(given) ? given : createSecret();
  if (secret !== given) setCookie(reply, 'visitor', secret);
  return csrfTokenOf(secret);
}

/** Also sends Retry-After. @param text has {minutes}, which are whole */
export function throttledText(reply: FastifyReply, text: string, waitMs: number): string {
  reply.header('retry-after', String(Math.ceil(waitMs / 1000)));
  return fill(text, { minutes: Math.max(1, Math.ceil(waitMs / 60_000)) });
}

interface SignInPage {
  readonly to: string | undefined;
  readonly mail?: string;
  readonly provider: ProviderSignIn | undefined;
  readonly byMail: boolean;
  readonly problem?: string;
  readonly status?: number;
}

function renderSignIn(
  reply: FastifyReply,
  { to, mail = '', provider, byMail, problem, status = 200 }: SignInPage,
): FastifyReply {
  const { words } = localeOf(reply.request);
  const { signIn } = words;
  const csrf = csrfOfVisitor(reply);
  return renderPage(reply, {
    title: signIn.title,
    status,
    notices: signIn.notices,
    scripts: ['compare.js'],
    aside: html`${demoStage(words)}
      <h2>${signIn.pitch}</h2>
      <p class="soft">${signIn.pitchText} <a href=${DOCS_PATH}>${signIn.docs}</a></p>`,
    main: html`<div class="stack">
      ${problem === undefined ? null : notice('bad', problem)}
      ${postForm(
        { action: SIGN_IN_PATH, csrf, ...(to === undefined ? {} : { hidden: { to } }) },
        textField({
          name: 'mail',
          label: signIn.mail,
          type: 'email',
          value: mail,
          required: true,
          autocomplete: 'username',
          maxlength: 254,
          autofocus: mail === '',
        }),
        textField({
          name: 'password',
          label: signIn.password,
          type: 'password',
          required: true,
          autocomplete: 'current-password',
          maxlength: 256,
          autofocus: mail !== '',
        }),
        button({ label: signIn.submit }),
      )}
      ${
        provider === undefined
          ? null
          : html`<p>${linkButton({
              href: signInPathTo(to, `${SIGN_IN_PATH}/provider`),
              label: signIn.byProvider,
            })}</p>`
      }
      <p class="hint">${byMail ? signIn.forgottenByMail : signIn.forgotten}</p>
    </div>`,
  });
}

function renderRefusedSignIn(
  reply: FastifyReply,
  outcome:
    | { readonly kind: 'refused' | 'no-account' }
    | { readonly kind: 'throttled'; readonly waitMs: number },
  page: SignInPage,
): FastifyReply {
  const { signIn } = localeOf(reply.request).words;
  if (outcome.kind === 'throttled') {
    const problem = throttledText(reply, signIn.throttled, outcome.waitMs);
    return renderSignIn(reply, { ...page, problem, status: 429 });
  }
  const problem = outcome.kind === 'refused' ? signIn.wrong : signIn.noAccount;
  return renderSignIn(reply, { ...page, problem, status: 422 });
}

interface KeptFlow extends OpenIdFlow {
  readonly to?: string;
}

/**
 * To the identity provider and back. Starts with a link, since the security policy forbids forms to
 * other hosts. The browser must come back with the values in a cookie.
 */
function registerProviderRoutes(
  account: FastifyInstance,
  provider: ProviderSignIn,
  byMail: boolean,
): void {
  account.get('/sign-in/provider', OPEN, async (request, reply) => {
    const to = returnPathOf(queryOf(request, 'to'));
    // Otherwise a stranger's link could sign a person in without their click.
    if (isFromElsewhere(request)) return reply.redirect(signInPathTo(to), 303);
    const { url, flow } = await orProviderDown(request, provider.begin(browserOf(request)));
    const kept: KeptFlow = to === undefined ? flow : { ...flow, to };
    setCookie(reply, 'flow', Buffer.from(JSON.stringify(kept)).toString('base64url'), FLOW_S);
    return reply.redirect(url, 303);
  });
  account.get('/sign-in/provider/back', OPEN, async (request, reply) => {
    const flow = flowOf(readCookie(request, 'flow'));
    clearCookie(reply, 'flow');
    if (flow === undefined) throw new PageError('staleForm');
    const at = request.url.indexOf('?');
    const query = at === -1 ? '' : request.url.slice(at);
    const coming = provider.finish(query, flow, browserOf(request));
    const outcome = await orProviderDown(request, coming);
    request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in by the provider');
    const to = returnPathOf(flow.to);
    if (outcome.kind !== 'signed-in') {
      return renderRefusedSignIn(reply, outcome, { to, provider, byMail });
    }
    letIn(reply, outcome);
    return reply.redirect(to ?? ACCOUNT_PATH, 303);
  });
}

async function orProviderDown<T>({ log }: FastifyRequest, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof OpenIdError)) throw error;
    log.warn({ err: error.cause }, error.message);
    throw new PageError('providerDown', { cause: error });
  }
}

function flowOf(cookie: string | undefined): KeptFlow | undefined {
  if (cookie === undefined) return undefined;
  try {
    const flow = JSON.parse(Buffer.from(cookie, 'base64url').toString()) as Partial<KeptFlow>;
    const { state, nonce, verifier, to } = flow;
    const isWhole = [state, nonce, verifier].every(one => typeof one === 'string' && one !== '');
    if (!isWhole || (to !== undefined && typeof to !== 'string')) return undefined;
    return flow as KeptFlow;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

type LinkRequest = FastifyRequest<{ Params: { token: string } }>;

function registerLinkRoutes(account: FastifyInstance, links: UseLinks): void {
  const find = async ({ params }: LinkRequest, purpose: 'invitation' | 'sign-in') =>
    isSecret(params.token) ? links.find(params.token, purpose) : undefined;

  account.get('/links/:token', OPEN, async (request: LinkRequest, reply) => {
    const link = await find(request, 'sign-in');
    if (link === undefined) return renderUnusable(reply, 'sign-in');
    const { signIn } = localeOf(request).words;
    const csrf = csrfOfVisitor(reply);
    const action = `${ACCOUNT_PATH}/links/${request.params.token}`;
    // Opening a link does not use it up, since previews of mails open links, too.
    const main = html`<div class="stack">
      <p>${fill(signIn.linkLead, { mail: link.mail, account: link.accountName })}</p>
      ${postForm({ action, csrf }, button({ label: signIn.submit }))}
    </div>`;
    return renderPage(reply, { title: signIn.title, main });
  });
  account.post('/links/:token', OPEN, async (request: LinkRequest, reply) => {
    const outcome = await links.signIn(request.params.token, browserOf(request));
    request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in by a link');
    if (outcome.kind !== 'signed-in') return renderUnusable(reply, 'sign-in');
    letIn(reply, outcome);
    return reply.redirect(ACCOUNT_PATH, 303);
  });
  account.get('/invitations/:token', OPEN, async (request: LinkRequest, reply) => {
    const link = await find(request, 'invitation');
    if (link === undefined) return renderUnusable(reply, 'invitation');
    return renderInvitation(request, reply, link);
  });
  account.post('/invitations/:token', OPEN, async (request: LinkRequest, reply) => {
    const { token } = request.params;
    const by = { ...browserOf(request), userId: maybeSignedIn(request)?.userId };
    const password = formOf(request).text('password');
    const outcome = await links.acceptInvitation(token, password, by);
    request.log.info({ outcome: outcome.kind, address: request.ip }, 'invitation');
    if (outcome.kind === 'signed-in') {
      letIn(reply, outcome);
      return reply.redirect(ACCOUNT_PATH, 303);
    }
    const link = await find(request, 'invitation');
    if (link === undefined || outcome.kind === 'unknown') {
      return renderUnusable(reply, 'invitation');
    }
    const error = refusalText(reply, localeOf(request).words, outcome);
    const status = outcome.kind === 'throttled' ? 429 : 422;
    return renderInvitation(request, reply, link, { status, error });
  });
}

/** The page does not reveal whether somebody has that mail here. */
function renderInvitation(
  request: LinkRequest,
  reply: FastifyReply,
  { mail, accountName: account, role }: FoundLink,
  refused?: { readonly error: string | undefined; readonly status: number },
): FastifyReply {
  const { words } = localeOf(request);
  const { invitation, roles } = words;
  const signedIn = maybeSignedIn(request);
  const isTheirs = signedIn !== undefined && mailKeyOf(signedIn.mail) === mailKeyOf(mail);
  const form = {
    mail,
    action: `${ACCOUNT_PATH}/invitations/${request.params.token}`,
    csrf: csrfOfVisitor(reply),
    isSignedIn: isTheirs,
    error: refused?.error,
  };
  return renderPage(reply, {
    title: invitation.title,
    status: refused?.status ?? 200,
    main: html`<div class="stack">
      <p>${fill(invitation.lead, { mail, account, role: roles[role] })}</p>
      ${
        signedIn === undefined || isTheirs
          ? passwordToAccept(words, form)
          : notice('warning', fill(invitation.anotherPerson, { mail: signedIn.mail }))
      }
    </div>`,
  });
}

function passwordToAccept(
  { invitation, signIn }: Words,
  form: {
    readonly mail: string;
    readonly action: string;
    readonly csrf: string;
    readonly isSignedIn: boolean;
    readonly error: string | undefined;
  },
): VNode {
  const { mail, action, csrf, isSignedIn, error } = form;
  return postForm(
    { action, csrf },
    // The field tells a password manager whose password it is.
    html`<input type="email" name="mail" value=${mail} autocomplete="username" readonly hidden />`,
    textField({
      name: 'password',
      label: signIn.password,
      type: 'password',
      hint: isSignedIn ? invitation.confirmHint : invitation.passwordHint,
      error,
      required: true,
      autocomplete: isSignedIn ? 'current-password' : 'new-password',
      maxlength: 256,
      autofocus: true,
    }),
    button({ label: invitation.accept }),
  );
}

function refusalText(
  reply: FastifyReply,
  { invitation, profile, signIn }: Words,
  outcome: Exclude<AcceptOutcome, { readonly kind: 'signed-in' | 'unknown' }>,
): string | undefined {
  switch (outcome.kind) {
    case 'another-person':
      return undefined;
    case 'bad-password':
      return profile.faults[outcome.fault];
    case 'throttled':
      return throttledText(reply, signIn.throttled, outcome.waitMs);
    case 'refused':
    case 'unproven':
      return invitation[outcome.kind];
    case 'account-full':
      return invitation.full;
  }
}

function renderUnusable(reply: FastifyReply, purpose: 'invitation' | 'sign-in'): FastifyReply {
  const { invitation, signIn } = localeOf(reply.request).words;
  const isInvitation = purpose === 'invitation';
  return renderPage(reply, {
    title: isInvitation ? invitation.title : signIn.title,
    status: 404,
    main: notice('warning', isInvitation ? invitation.unknown : signIn.linkUnknown),
  });
}

/** Whether another site led here. Counts a browser without the header as ours. */
function isFromElsewhere({ raw }: FastifyRequest): boolean {
  const sites = headerValues(raw, 'sec-fetch-site');
  return sites.some(site => site !== 'same-origin' && site !== 'none');
}
