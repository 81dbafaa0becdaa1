/** Every mutation: one guard each, gone or wrong by itself (mutate.ts). */
import { ACCESS_MUTATIONS } from './access-mutations.ts';
import { DIRECT_MUTATIONS } from './direct-mutations.ts';
import { FINISHING_MUTATIONS } from './finishing-mutations.ts';
import { FORM_MUTATIONS } from './form-mutations.ts';
import { HELD_MUTATIONS } from './held-mutations.ts';
import { KEY_MUTATIONS } from './key-mutations.ts';
import { MAIL_MUTATIONS } from './mail-mutations.ts';
import { MODEL_MUTATIONS } from './model-mutations.ts';
import type { Mutation } from './mutation.ts';
import { NODE_MUTATIONS } from './node-mutations.ts';
import { PAGE_MUTATIONS } from './page-mutations.ts';
import { PEOPLE_MUTATIONS } from './people-mutations.ts';
import { PLAYGROUND_MUTATIONS } from './playground-mutations.ts';
import { PORT_MUTATIONS } from './port-mutations.ts';
import { SALES_MUTATIONS } from './sales-mutations.ts';
import { SERVICE_MUTATIONS } from './service-mutations.ts';
import { STORE_MUTATIONS } from './store-mutations.ts';

export const MUTATIONS: readonly Mutation[] = [
  ...STORE_MUTATIONS,
  ...SERVICE_MUTATIONS,
  ...NODE_MUTATIONS,
  ...FINISHING_MUTATIONS,
  ...FORM_MUTATIONS,
  ...MODEL_MUTATIONS,
  ...PLAYGROUND_MUTATIONS,
  ...KEY_MUTATIONS,
  ...SALES_MUTATIONS,
  ...PEOPLE_MUTATIONS,
  ...ACCESS_MUTATIONS,
  ...PAGE_MUTATIONS,
  ...PORT_MUTATIONS,
  ...HELD_MUTATIONS,
  ...DIRECT_MUTATIONS,
  ...MAIL_MUTATIONS,
];
