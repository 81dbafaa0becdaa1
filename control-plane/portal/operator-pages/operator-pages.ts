/**
 * The operator's pages under /operator, on the operator's port. Their session opens no route of the
 * JSON interface, and an Authorization header opens no page.
 */

import cookie from '@fastify/cookie';
import type { OperatorServices } from '@matting/core/http/app-services.ts';
import { createErrorHandler } from '@matting/http/error-handler.ts';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { isSameToken } from '@matting/program/tokens.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { OperateOrders } from '../orders/operate-orders.ts';
import { type OrderPageServices, registerOrderPages } from '../orders/operator-order-pages.ts';
import { registerAssets } from '../page/assets.ts';
import { assetsOf, type Brand, noteBrand } from '../page/brand.ts';
import { button } from '../page/buttons.ts';
import { postForm, textField } from '../page/forms.ts';
import {
  OPERATOR_PATH,
  PAGES_PATH,
  renderOperatorPage,
  writeOperatorError,
} from '../page/operator-frame.ts';
import { AttemptWindows } from '../session/attempt-windows.ts';
import { AuthorityError } from '../session/authority.ts';
import type { EndedOperatorSessions } from '../session/ended-operator-sessions.ts';
import { csrfTokenOf } from '../session/form-token.ts';
import { guardRoutes } from '../session/guard.ts';
import { formOf, localeOf, maybeCsrf, note, PageError } from '../session/visit.ts';
import { isLanguage } from '../words/words.ts';
import { registerAccountPages } from './account-pages.ts';
import { registerNodePages } from './node-pages.ts';
import { OperatorSessions, SESSION_MS } from './operator-sessions.ts';
import { registerOverviewPage } from './overview-page.ts';
import { registerJobPages, registerNotificationPages } from './work-pages.ts';

interface OperatorPagesOptions {
  readonly baseUrl: string;
  readonly operatorKey: string | undefined;
  readonly brand?: Brand;
}

export function operatorPages(
  services: OperatorServices,
  stores: ConstructorParameters<typeof OperateOrders>[0] & {
    readonly endedOperatorSessions: EndedOperatorSessions;
  },
  options: OperatorPagesOptions,
): (app: FastifyInstance) => void {
  const { operatorKey } = options;
  if (operatorKey === undefined) return () => undefined;
  const all = { ...services, operateOrders: new OperateOrders(stores) };
  const sessions = new OperatorSessions(operatorKey, stores.endedOperatorSessions);
  return app => registerOperatorPages(app, all, { ...options, operatorKey, sessions });
}

function registerOperatorPages(
  app: FastifyInstance,
  services: OperatorServices & OrderPageServices,
  {
    baseUrl,
    operatorKey,
    brand,
    sessions,
  }: OperatorPagesOptions & { readonly operatorKey: string; readonly sessions: OperatorSessions },
): void {
  app.register(async pages => {
    await pages.register(cookie);
    pages.setErrorHandler(errorHandlerOf(baseUrl));
    pages.addHook('onRequest', async request => noteBrand(request, brand));
    guardOperatorPages(pages, sessions);
    registerAssets(pages, `${OPERATOR_PATH}/assets`, assetsOf(brand));
    registerSignIn(pages, sessions, operatorKey);
    registerAccountPages(pages, services);
    registerOverviewPage(pages, services);
    registerNodePages(pages, services);
    registerJobPages(pages, services);
    registerNotificationPages(pages, services);
    registerOrderPages(pages, services);
    pages.get(`${PAGES_PATH}/*`, () => {
      throw new ContractError('NOT_FOUND', 'There is no such page.');
    });
  });
}

function errorHandlerOf(baseUrl: string) {
  const handleOthers = createErrorHandler(baseUrl, {
    shown: ['public', 'operator'],
    writerOf: () => writeOperatorError,
  });
  return (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    if (error instanceof AuthorityError) reply.redirect(SIGN_IN_PATH, 303);
    else if (error instanceof PageError) writeOperatorError(error, request, reply);
    else handleOthers(error, request, reply);
  };
}

/** Over TLS the prefix keeps other hosts from setting the cookie. This machine's pages lack TLS. */
const SECURE_COOKIE = '__Host-matting-operator';
const PLAIN_COOKIE = 'matting-operator';
const LANGUAGE_COOKIE = 'matting-operator-language';

function cookieOptions(isSecure: boolean) {
  const path = isSecure ? '/' : OPERATOR_PATH;
  return { path, secure: isSecure, httpOnly: true, sameSite: 'strict' } as const;
}

function beginSession(reply: FastifyReply, sessions: OperatorSessions, isSecure: boolean) {
  return reply.setCookie(isSecure ? SECURE_COOKIE : PLAIN_COOKIE, sessions.create(), {
    ...cookieOptions(isSecure),
    maxAge: SESSION_MS / 1000,
  });
}

async function endSessions(reply: FastifyReply, sessions: OperatorSessions): Promise<void> {
  for (const token of await tokensOf(reply.request, sessions)) await sessions.end(token);
  reply
    .clearCookie(SECURE_COOKIE, cookieOptions(true))
    .clearCookie(PLAIN_COOKIE, cookieOptions(false));
}

/** A browser may have a cookie of each name. */
async function tokensOf({ cookies }: FastifyRequest, sessions: OperatorSessions) {
  const valid: string[] = [];
  for (const token of [cookies[SECURE_COOKIE], cookies[PLAIN_COOKIE]]) {
    if (token !== undefined && (await sessions.isValid(token))) valid.push(token);
  }
  return valid;
}

function guardOperatorPages(pages: FastifyInstance, sessions: OperatorSessions): void {
  pages.addHook('onRequest', async request => {
    note(request, { language: request.cookies[LANGUAGE_COOKIE] });
  });
  guardRoutes(pages, {
    isOwnOrigin: (origin, request) =>
      URL.canParse(origin) && new URL(origin).host === request.headers.host,
    async admit(request) {
      const [token] = await tokensOf(request, sessions);
      note(request, { csrf: token && csrfTokenOf(token) });
      const isOpen = request.routeOptions.config.public === true;
      if (token === undefined && !isOpen) throw new AuthorityError('signed-out');
    },
    tokenOf: maybeCsrf,
  });
}

const SIGN_IN_PATH = `${OPERATOR_PATH}/sign-in`;
const YEAR_SECONDS = 31_536_000;
/**
 * Bounds guesses of the operator key from one network. The key has at least 32 characters, so
 * replicas need not share the count. No count covers all networks, or strangers could lock the
 * operator out.
 */
const KEY_GUESSES = { windowMs: 60_000, max: 10, keysMax: 1000 };

function registerSignIn(pages: FastifyInstance, sessions: OperatorSessions, operatorKey: string) {
  const failures = new AttemptWindows(KEY_GUESSES);
  pages.get(SIGN_IN_PATH, { config: { public: true } }, (request, reply) => {
    if (maybeCsrf(request) !== undefined) return reply.redirect(OPERATOR_PATH, 303);
    return renderSignIn(reply);
  });
  const requireAttempt = (request: FastifyRequest) => {
    const waitS = failures.waitS(networkOf(request.ip));
    if (waitS > 0) throw new PageError('tooManyAttempts', { retryAfterS: waitS });
  };
  // Counts of failures are checked here, before the form's bytes arrive, and again after them.
  const onRequest = async (request: FastifyRequest) => {
    requireSafeOrigin(request);
    requireAttempt(request);
  };
  // The form needs no token, since the operator key in it is the proof.
  const config = { public: true, body: 'tokenless' } as const;
  pages.post(SIGN_IN_PATH, { config, onRequest }, (request, reply) => {
    const isSecure = requireSafeOrigin(request);
    requireAttempt(request);
    if (!isSameToken(formOf(request).text('key'), operatorKey)) {
      failures.count(networkOf(request.ip));
      request.log.warn({ command: 'sign-in' }, 'operator: a wrong key');
      return renderSignIn(reply, localeOf(request).words.operator.signIn.wrong);
    }
    request.log.info({ command: 'sign-in' }, 'operator');
    return beginSession(reply, sessions, isSecure).redirect(OPERATOR_PATH, 303);
  });
  pages.post(`${OPERATOR_PATH}/sign-out`, async (_request, reply) => {
    await endSessions(reply, sessions);
    return reply.redirect(SIGN_IN_PATH, 303);
  });
  pages.post(`${OPERATOR_PATH}/language`, (request, reply) => {
    const language = formOf(request).text('language');
    if (!isLanguage(language)) throw new PageError('badForm');
    return reply
      .setCookie(LANGUAGE_COOKIE, language, { ...cookieOptions(false), maxAge: YEAR_SECONDS })
      .redirect(backOf(formOf(request).text('back')), 303);
  });
}

function renderSignIn(reply: FastifyReply, error?: string): FastifyReply {
  const { operator: own } = localeOf(reply.request).words;
  return renderOperatorPage(reply, {
    title: own.signIn.title,
    lead: own.signIn.lead,
    status: error === undefined ? 200 : 422,
    main: postForm(
      { action: SIGN_IN_PATH, csrf: undefined },
      textField({
        name: 'key',
        label: own.signIn.key,
        hint: own.signIn.hint,
        type: 'password',
        autocomplete: 'current-password',
        required: true,
        error,
      }),
      button({ label: own.signIn.submit }),
    ),
  });
}

/** True over TLS. @throws PageError insecure: others could read the key on its way */
function requireSafeOrigin(request: FastifyRequest): boolean {
  const { protocol, hostname } = new URL(String(request.headers.origin));
  if (protocol === 'https:') return true;
  if (/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(hostname)) return false;
  throw new PageError('insecure');
}

const BACK = /^\/operator(?:\/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.+:-]*)?$/;

function backOf(text: string): string {
  return BACK.test(text) ? text : OPERATOR_PATH;
}
