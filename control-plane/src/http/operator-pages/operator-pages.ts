/**
 * The operator's pages below /operator: what the command line and the JSON interface do, for people.
 * A scope of its own on the operator's port: its session opens no route of the JSON interface, and
 * an Authorization header opens no page.
 */
import cookie from '@fastify/cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError, type ErrorCode } from '#contract/errors.ts';
import { registerAssets } from '../account/page/assets.ts';
import { readFormBody, requireFormHead } from '../account/session/form-body.ts';
import { PageError } from '../account/session/page-error.ts';
import { setForm } from '../account/session/signed-in.ts';
import { createErrorHandler } from '../answers/error-handler.ts';
import { problemHeaders } from '../answers/problem.ts';
import { headerValues } from '../headers/raw-headers.ts';
import { type AccountPageServices, registerAccountPages } from './account-pages.ts';
import { type JobPageServices, registerJobPages } from './job-pages.ts';
import { type NodePageServices, registerNodePages } from './node-pages.ts';
import { type NotificationPageServices, registerNotificationPages } from './notification-pages.ts';
import {
  OPERATOR_PATH,
  type OperatorErrorKind,
  PAGES_PATH,
  renderOperatorError,
  setCsrf,
} from './operator-frame.ts';
import { OperatorSessions } from './operator-session.ts';
import { type OrderPageServices, registerOrderPages } from './order-pages.ts';
import { type OverviewPageServices, registerOverviewPage } from './overview-page.ts';
import { readSession, registerSignIn, SIGN_IN_PATH } from './sign-in-pages.ts';

export type OperatorPageServices = AccountPageServices &
  JobPageServices &
  NodePageServices &
  NotificationPageServices &
  OrderPageServices &
  OverviewPageServices;

export interface OperatorPageOptions {
  readonly baseUrl: string;
  /** Undefined: there are no pages. */
  readonly operatorKey: string | undefined;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Of the operator's pages: shown without the session. */
    readonly beforeSignIn?: boolean;
  }
}

export function registerOperatorPages(
  app: FastifyInstance,
  services: OperatorPageServices,
  { baseUrl, operatorKey }: OperatorPageOptions,
): void {
  if (operatorKey === undefined) return;
  app.register(async pages => {
    await pages.register(cookie);
    const sessions = new OperatorSessions(operatorKey);
    pages.setErrorHandler(errorHandlerOf(baseUrl));
    guardPages(pages, sessions);
    registerAssets(pages, { path: `${OPERATOR_PATH}/assets`, config: { beforeSignIn: true } });
    registerSignIn(pages, { sessions, operatorKey });
    registerOverviewPage(pages, services);
    registerAccountPages(pages, services);
    registerNodePages(pages, services);
    registerJobPages(pages, services);
    registerNotificationPages(pages, services);
    registerOrderPages(pages, services);
    pages.get(`${PAGES_PATH}/*`, () => {
      throw new ContractError('NOT_FOUND', 'there is no such page');
    });
  });
}

/**
 * A session for every page but the sign-in, of a form again when it is whole; and a form comes
 * from a page of ours.
 */
function guardPages(pages: FastifyInstance, sessions: OperatorSessions): void {
  pages.addHook('onRequest', async (request, reply) => {
    const isForm = request.method === 'POST';
    if (isForm) requireOwnOrigin(request);
    const session = noteSession(request, sessions);
    if (session === undefined && !isBeforeSignIn(request)) {
      return reply.redirect(SIGN_IN_PATH, 303);
    }
    if (isForm) requireFormHead(request);
    return undefined;
  });
  pages.addHook('preHandler', async (request, reply) => {
    if (request.method !== 'POST') return undefined;
    const form = await readFormBody(request, reply);
    const session = noteSession(request, sessions);
    // The sign-in form has no session: who sends it from here knows the key or does not.
    if (!isBeforeSignIn(request)) {
      if (session === undefined) return reply.redirect(SIGN_IN_PATH, 303);
      if (!sessions.isCsrf(session, form.text('csrf'))) throw new PageError('staleForm');
    }
    setForm(request, form);
    return undefined;
  });
}

/** For the forms of the page; undefined: there is none (any more). */
function noteSession(request: FastifyRequest, sessions: OperatorSessions): string | undefined {
  const session = readSession(request, sessions);
  setCsrf(request, session && sessions.csrfOf(session));
  return session;
}

function isBeforeSignIn({ routeOptions }: FastifyRequest): boolean {
  return routeOptions.config.beforeSignIn === true;
}

/** Browsers send it with every POST; this port has no name of its own but the one it is asked by. */
function requireOwnOrigin(request: FastifyRequest): void {
  const [origin, ...more] = headerValues(request.raw, 'origin');
  const isOne = origin !== undefined && more.length === 0 && URL.canParse(origin);
  if (!isOne || new URL(origin).host !== request.headers.host) throw new PageError('otherOrigin');
}

const KINDS: Readonly<Partial<Record<ErrorCode, OperatorErrorKind>>> = {
  NOT_FOUND: 'notFound',
  JOB_NOT_FOUND: 'notFound',
  SERVICE_UNAVAILABLE: 'unavailable',
};

function errorHandlerOf(baseUrl: string) {
  const handleOthers = createErrorHandler(baseUrl, {
    shown: ['public', 'operator'],
    writerOf: () => writeError,
  });
  return (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    if (!(error instanceof PageError)) {
      handleOthers(error, request, reply);
      return;
    }
    const { kind, status, retryAfterS } = error;
    if (retryAfterS !== undefined) reply.header('retry-after', String(retryAfterS));
    const shown = kind === 'forbidden' || kind === 'providerDown' ? 'badForm' : kind;
    renderOperatorError(request, reply, { kind: shown, status });
  };
}

function writeError(error: ContractError, request: FastifyRequest, reply: FastifyReply): void {
  const status = error.spec.http;
  const kind = KINDS[error.code] ?? (status >= 500 ? 'internal' : 'badForm');
  const retryAfter = problemHeaders(error)['retry-after'];
  if (retryAfter !== undefined) reply.header('retry-after', retryAfter);
  // The detail of an internal error is said to be none.
  const detail = status === 500 ? {} : { detail: error.message };
  renderOperatorError(request, reply, { kind, status, ...detail });
}
