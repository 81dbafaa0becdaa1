/** Signing in with the operator key, signing out, and the choice of a language. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { networkOf } from '#program/ports/addresses.ts';
import { isOperatorKey } from '../../core/http/operator-app.ts';
import { AttemptWindows } from '../../core/rates/rate-windows.ts';
import { button, postForm, textField } from '../page/html.ts';
import { formOf, localeOf, maybeCsrf, PageError } from '../session/visit.ts';
import { isLanguage } from '../words/words.ts';
import { OPERATOR_PATH, renderOperatorPage } from './operator-frame.ts';
import {
  beginSession,
  cookieOptions,
  endSessions,
  LANGUAGE_COOKIE,
  type OperatorSessions,
} from './operator-session.ts';

export const SIGN_IN_PATH = `${OPERATOR_PATH}/sign-in`;
const YEAR_SECONDS = 31_536_000;
/**
 * How often the operator key may be guessed from one network; past `keysMax` networks, the one
 * counted first is forgotten. Counted by this process: the key has 32 characters and more, so
 * replicas need not share it, and there is no count of all networks together, which those of others
 * could use up for the operator.
 */
export const KEY_GUESSES = { windowMs: 60_000, max: 10, keysMax: 1000 };

export function registerSignIn(
  pages: FastifyInstance,
  sessions: OperatorSessions,
  operatorKey: string,
): void {
  const failures = new AttemptWindows(KEY_GUESSES);
  pages.get(SIGN_IN_PATH, { config: { public: true } }, (request, reply) => {
    if (maybeCsrf(request) !== undefined) return reply.redirect(OPERATOR_PATH, 303);
    return renderSignIn(reply);
  });
  const requireAttempt = (request: FastifyRequest) => {
    const waitS = failures.waitS(networkOf(request.ip));
    if (waitS > 0) throw new PageError('tooManyAttempts', { retryAfterS: waitS });
  };
  // Before the form's bytes are awaited; and again after them, since others may have come before.
  const onRequest = async (request: FastifyRequest) => {
    requireSafeOrigin(request);
    requireAttempt(request);
  };
  // Without a token: who sends the form from here knows the key or does not.
  const config = { public: true, body: 'tokenless' } as const;
  pages.post(SIGN_IN_PATH, { config, onRequest }, (request, reply) => {
    const isSecure = requireSafeOrigin(request);
    requireAttempt(request);
    if (!isOperatorKey(operatorKey, formOf(request).text('key'))) {
      failures.count(networkOf(request.ip));
      request.log.warn({ command: 'sign-in' }, 'operator: a wrong key');
      return renderSignIn(reply, localeOf(request).words.operator.signIn.wrong);
    }
    request.log.info({ command: 'sign-in' }, 'operator');
    return beginSession(reply, sessions, isSecure).redirect(OPERATOR_PATH, 303);
  });
  pages.post(`${OPERATOR_PATH}/sign-out`, (_request, reply) =>
    endSessions(reply, sessions).redirect(SIGN_IN_PATH, 303),
  );
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

/** True over TLS. @throws PageError insecure where the key could be read on its way */
function requireSafeOrigin(request: FastifyRequest): boolean {
  const { protocol, hostname } = new URL(String(request.headers.origin));
  if (protocol === 'https:') return true;
  if (/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(hostname)) return false;
  throw new PageError('insecure');
}

const BACK = /^\/operator(?:\/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.+:-]*)?$/;

/** A path of these pages, never another host's. */
function backOf(text: string): string {
  return BACK.test(text) ? text : OPERATOR_PATH;
}
