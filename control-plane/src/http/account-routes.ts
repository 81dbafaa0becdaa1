/** GET /v1/account. */
import type { FastifyInstance } from 'fastify';
import type { ReadAccount } from '../services/account.ts';
import { callerOf } from './authentication.ts';
import type { HeaderChecks } from './header-checks.ts';

export function registerAccountRoutes(
  app: FastifyInstance,
  readAccount: ReadAccount,
  checks: HeaderChecks,
): void {
  app.get('/v1/account', { onRequest: checks.read }, request =>
    readAccount.view(callerOf(request)),
  );
}
