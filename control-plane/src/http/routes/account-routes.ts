/** GET /v1/account, /v1/account/packages and /v1/account/keys. */
import type { FastifyInstance } from 'fastify';
import type { ReadAccount } from '../../services/account.ts';
import { callerOf } from '../checks/authentication.ts';
import type { HeaderChecks } from '../checks/header-checks.ts';

export function registerAccountRoutes(
  app: FastifyInstance,
  readAccount: ReadAccount,
  checks: HeaderChecks,
): void {
  const read = { onRequest: checks.read };
  app.get('/v1/account', read, request => readAccount.view(callerOf(request)));
  app.get('/v1/account/packages', read, async () => readAccount.packages());
  app.get('/v1/account/keys', read, request => readAccount.keys(callerOf(request)));
}
