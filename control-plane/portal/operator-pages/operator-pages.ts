/**
 * The operator's pages below /operator: what the command line and the JSON interface do, for people.
 * A scope of its own on the operator's port: its session opens no route of the JSON interface, and
 * an Authorization header opens no page.
 */
import cookie from '@fastify/cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { OperatorServices } from '../../core/http/app-services.ts';
import { createErrorHandler } from '../../http/answers.ts';
import { OperateOrders } from '../orders/operate-orders.ts';
import { type OrderPageServices, registerOrderPages } from '../orders/operator-order-pages.ts';
import { registerAssets } from '../page/frame.ts';
import { PageError } from '../session/visit.ts';
import { AuthorityError } from '../sign-in/session-store.ts';
import { registerAccountPages } from './account-pages.ts';
import { registerJobPages } from './job-pages.ts';
import { registerNodePages } from './node-pages.ts';
import { registerNotificationPages } from './notification-pages.ts';
import { OPERATOR_PATH, PAGES_PATH, writeOperatorError } from './operator-frame.ts';
import { guardOperatorPages, OperatorSessions } from './operator-session.ts';
import { registerSignIn, SIGN_IN_PATH } from './sign-in-pages.ts';

interface OperatorPagesOptions {
  readonly baseUrl: string;
  /** Undefined: there are no pages. */
  readonly operatorKey: string | undefined;
}

/** What adds the pages to the operator's port. */
export function operatorPages(
  services: OperatorServices,
  stores: ConstructorParameters<typeof OperateOrders>[0],
  options: OperatorPagesOptions,
): (app: FastifyInstance) => void {
  const all = { ...services, operateOrders: new OperateOrders(stores) };
  return app => registerOperatorPages(app, all, options);
}

function registerOperatorPages(
  app: FastifyInstance,
  services: OperatorServices & OrderPageServices,
  { baseUrl, operatorKey }: OperatorPagesOptions,
): void {
  if (operatorKey === undefined) return;
  app.register(async pages => {
    await pages.register(cookie);
    const sessions = new OperatorSessions(operatorKey);
    pages.setErrorHandler(errorHandlerOf(baseUrl));
    guardOperatorPages(pages, sessions);
    registerAssets(pages, `${OPERATOR_PATH}/assets`);
    registerSignIn(pages, sessions, operatorKey);
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
