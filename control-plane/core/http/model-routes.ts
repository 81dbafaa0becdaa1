/** GET /v1/models. */
import type { FastifyInstance } from 'fastify';
import type { AppServices } from './app-services.ts';
import { callerOf, type HeaderChecks } from './header-checks.ts';

export function registerModelRoutes(
  app: FastifyInstance,
  { models }: AppServices,
  checks: HeaderChecks,
): void {
  app.get('/v1/models', { onRequest: checks.models }, async request =>
    models.list(callerOf(request).policy),
  );
}
