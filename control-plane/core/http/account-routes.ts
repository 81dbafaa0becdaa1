/** GET /v1/account and what is below it. */
import type { FastifyInstance } from 'fastify';
import type { AppServices } from './app-services.ts';
import { callerOf, type HeaderChecks } from './header-checks.ts';

export function registerAccountRoutes(
  app: FastifyInstance,
  { readAccount }: AppServices,
  checks: HeaderChecks,
): void {
  const read = { onRequest: checks.account };
  app.get('/v1/account', read, request => readAccount.view(callerOf(request)));
  app.get('/v1/account/keys', read, request => readAccount.keys(callerOf(request)));
}
