import assert from 'node:assert/strict';
import type { FastifyInstance } from 'fastify';

/**
 * @param app after `ready`, when packages have added their routes
 * @returns sorted, such as `GET /v1/matting/jobs/:jobId`
 */
export function routesOf(app: Pick<FastifyInstance, 'printRoutes'>): string[] {
  const lines = app
    .printRoutes({ commonPrefix: false })
    .split('\n')
    .filter(line => line.trim() !== '');
  const found: string[] = [];
  const parents: string[] = [];
  for (const line of lines) {
    const [, indent = '', part, methods] =
      /^([│ ]*)[├└]── (\S+)(?: \(([A-Z, ]+)\))?$/.exec(line) ?? [];
    assert.ok(part, `a line of another form: ${line}`);
    parents.splice(indent.length / 4, Number.POSITIVE_INFINITY, part);
    const route = parents.join('');
    for (const method of methods?.split(', ') ?? []) found.push(`${method} ${route}`);
  }
  return found.sort();
}
