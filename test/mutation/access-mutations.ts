/** Each line opens one route to callers whom a table of the tests keeps out. */
import { mutationsOf } from './mutation.ts';

export const ACCESS_MUTATIONS = mutationsOf`
file control-plane/portal/people/audit-page.ts
tests control-plane/portal/test/attacks/every-route.test.ts: who may
every viewer reads the log of changes
  - permission: 'audit.read'
  + permission: 'jobs.read'
  = a viewer may what the role has, in the own account

file control-plane/portal/session/roles.ts
tests control-plane/portal/test/attacks/every-route.test.ts: who may
members manage people
  -   'keys.manage',
  - ];
  +   'keys.manage',
  +   'people.manage',
  + ];
  = a member may what the role has, in the own account

file control-plane/portal/page/page-frame.ts
tests control-plane/portal/test/attacks/every-route.test.ts: who may
the navigation leads a viewer to pages of owners
  - person && may(person.role, permission)
  + person && may('owner', permission)
  = the navigation leads each role to the pages that it may see, and to no other

file control-plane/core/http/account-routes.ts
tests test/contract/access.test.ts
a key without the scope reads the account
  - const read = { onRequest: checks.account };
  + const read = { onRequest: checks.read };
  = GET /v1/account/keys takes account

file control-plane/core/http/model-routes.ts
tests test/contract/access.test.ts
the models are told to whoever asks
  - { onRequest: checks.models }
  + {}
  = GET /v1/models takes a key

file control-plane/portal/operator-pages/work-pages.ts
tests control-plane/portal/test/attacks/operator-routes.test.ts
a page of the operator needs no session
  - pages.get(NODES_PATH, async (request, reply) => {
  + pages.get(NODES_PATH, { config: { public: true } }, async (request, reply) => {
  = GET /operator/pages/nodes takes session

file control-plane/mcp/call-tools.ts
tests control-plane/mcp/mcp.test.ts
a tool reads the balance by a key that may read jobs
  - this.#callerOf(request, 'account')
  + this.#callerOf(request, 'read')
  = a key with the scope read alone calls the tools of that scope, and no other
`;
