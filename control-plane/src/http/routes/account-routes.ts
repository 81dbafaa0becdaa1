/** GET /v1/account and what is below it. */
import type { FastifyInstance } from 'fastify';
import type { AppServices } from '../app-services.ts';
import { readUsageQuery } from '../body/usage-query.ts';
import { callerOf } from '../checks/authentication.ts';
import type { HeaderChecks } from '../checks/header-checks.ts';

export function registerAccountRoutes(
  app: FastifyInstance,
  { readAccount, readUsage }: AppServices,
  checks: HeaderChecks,
): void {
  const read = { onRequest: checks.account };
  app.get('/v1/account', read, request => readAccount.view(callerOf(request)));
  app.get('/v1/account/packages', read, async () => readAccount.packages());
  app.get('/v1/account/keys', read, request => readAccount.keys(callerOf(request)));
  app.get('/v1/account/usage', read, request =>
    readUsage.view(callerOf(request).accountId, readUsageQuery(request.url)),
  );
}
