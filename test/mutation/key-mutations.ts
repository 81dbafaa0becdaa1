/** API keys: ends, secrets, caps, and what a key may do. */
import { mutationsOf } from './mutation.ts';

export const KEY_MUTATIONS = mutationsOf`
file program/followed.ts
tests program/test/followed.test.ts
a half-written token counts
  - if (!isSettled) return;
  + if (value === undefined) return;
  = a value that changes again while it is read is in the middle of being written

file control-plane/core/submission/submit-matting.ts
tests control-plane/core/webhooks/callbacks.test.ts: a held submission
a submission goes by what its key was when its headers came
  - const { policy } = await askAgain();
  + const policy = undefined as { cap?: object } | undefined;
  = counts for a cap that the key was given: /v1/matting/jobs
a key is not asked for after a name was looked up
  - const { policy } = await askAgain();
  + const policy = { cap: {} };
  = makes no job by a key that was revoked while a name was looked up

file control-plane/core/keys/authenticate.ts
tests control-plane/core/keys/accounts.test.ts: policies of keys on sqlite
an expired key is taken
  - is: leftMs > 0 ? owner : expired
  + is: owner
  = a key is refused from its expiry on, and told when that was
the old secret of a rotation never ends
  - previousLeftMs > 0 ? { ...owner, byPreviousSecret: true } : replaced
  + { ...owner, byPreviousSecret: true }
  = two secrets go on while a key is rotated, each to its end, and no memory outlives one
a secret that was made a moment ago is unknown where the old one is remembered
  - if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;
  + if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;
  +     if (this.#remembered.has(parsed.id)) return 'unknown';
  = two secrets go on while a key is rotated, each to its end, and no memory outlives one
a memory outlives the old secret
  - previousLeftMs > 0 ? previousLeftMs : API_KEY_MEMORY_MS,
  + API_KEY_MEMORY_MS,
  = two secrets go on while a key is rotated, each to its end, and no memory outlives one
a key of the service itself opens something
  - .where('purpose', 'is', null)
  = a key of the service itself is in no list, and opens nothing

file control-plane/core/keys/change-api-keys.ts
tests control-plane/core/keys/manage-keys.test.ts: a rotation
a rotation keeps no old secret
  - previous_secret_hash: eb.ref('secret_hash'),
  + previous_secret_hash: null,
  = within an overlap ends the oldest secret, and keeps the two others
a rotation at once lets the old secret go on
  - nowPlusMs(database.nowMs, by.overlapMs)
  + nowPlusMs(database.nowMs, by.overlapMs + 60_000)
  = at once ends the old secret here and now, and says when

file control-plane/core/keys/read-api-keys.ts
tests control-plane/core/keys/manage-keys.test.ts: another account
another account’s key is found
  - accountId === undefined || row.account_id === accountId
  + true
  = sees none of it, and changes none of it

file control-plane/core/keys/key-policy.ts
tests control-plane/core/keys/accounts.test.ts: policies of keys on sqlite
a cap is a credit too high
  - used + credits > cap.credits
  + used + credits > cap.credits + 1
  = a cap is kept to the credit by submissions that race at two replicas
tests control-plane/portal/people/account.test.ts: the count of a cap
a new cap goes on with the count of the one before
  - if (before?.period === cap.period) return count;
  + if (cap !== before) return count;
  = is kept where only the credits of its cap change

file control-plane/core/keys/key-caps.ts
tests control-plane/core/keys/accounts.test.ts: policies of keys on sqlite
a cap counts nothing
  - cap_used: after.used
  + cap_used: before.used
  = a cap is kept to the credit by submissions that race at two replicas
a credit goes back to a count that it was not in
  - .where('cap_window_start', '=', windowStartMs)
  = what a job of another period counted for is not given back to this one

file control-plane/core/transactions/job-completion.ts
tests control-plane/core/keys/accounts.test.ts: policies of keys on sqlite
a released credit stays counted
  - ending.kind === 'release' && job.capWindowStartMs !== null
  + job.capWindowStartMs === -1
  = what is released goes back to the cap, what is charged does not
a charged credit goes back to the cap
  - ending.kind === 'release' && job.capWindowStartMs !== null
  + job.capWindowStartMs !== null
  = what is released goes back to the cap, what is charged does not

file control-plane/core/keys/authenticate.ts
tests control-plane/core/accounts/account.test.ts
a key without the scope may
  - scopes !== undefined && !scopes.includes(scope)
  + scopes?.length === 0
  = scopes › read alone opens what it names and nothing else
a key may be used from anywhere
  - networks !== undefined && !isIpInNetworks(address, networks)
  + networks?.length === 0
  = networks › let in who is in one of them, by the address of the connection

file control-plane/core/http/header-checks.ts
tests control-plane/core/accounts/account.test.ts
what a key is refused is taken of the account’s rate
  - const ofKey = kind === 'submissions' ? policy?.submissionsPerMinute : undefined;
  + if (policy !== undefined) await rateLimits.take(accountId, kind);
  +   const ofKey = kind === 'submissions' ? policy?.submissionsPerMinute : undefined;
  = a rate of its own › refuses a key beyond it, and takes nothing of the account’s then

file control-plane/rembg/local-programs.ts
tests control-plane/rembg/rembg.test.ts
who comes through a proxy that is trusted needs no key
  - if (isPassedOn || isIpInNetworks(address, trustedProxies)) throw
  + if (isPassedOn) throw
  = without a key may ask who is near, by no proxy, from no browser
a page that says nothing of itself needs no key
  - if (says || BROWSER.test(headers['user-agent'] ?? '')) throw
  + if (says) throw
  = without a key may ask who is near, by no proxy, from no browser
a page of a reader’s own browser needs no key
  - if (says || BROWSER.test(headers['user-agent'] ?? '')) throw
  + if (BROWSER.test(headers['user-agent'] ?? '')) throw
  = without a key may ask who is near, by no proxy, from no browser
a service asks itself without a key
  - if (isSentByService(headers)) throw
  + if (!headers) throw
  = without a key may ask who is near, by no proxy, from no browser
a revoked key goes on standing in
  - key === undefined || key.state === 'revoked'
  + key === undefined
  = without a key the operator’s pays, and what its policy says holds

file program/ports/keyless.ts
tests control-plane/rembg/rembg.test.ts
a page under a name that leads here needs no key
  - (isIP(host) !== 0 || isPrivateName(host) || own.includes(host))
  + host !== ''
  = without a key may ask who is near, by no proxy, from no browser
a host name is believed up to an @
  - const url = HOST.test(text) ?
  + const url = text !== '' ?
  = without a key may ask who is near, by no proxy, from no browser
tests control-plane/rembg/led-here.test.ts
a service asks itself by another spelling
  - return OF_SERVICES.test(agent ?? '');
  + return agent === OWN_AGENT;
  = a download of this service is no program nearby, where any address is open

file control-plane/rembg/rembg-interface.ts
tests control-plane/rembg/rembg.test.ts
a key that is wrong counts as none
  - if (showsKey || standInKeyId === undefined) return
  + if (standInKeyId === undefined) return
  = without a key the operator’s pays, and what its policy says holds
a HEAD makes a picture
  - exposeHeadRoute: false
  + exposeHeadRoute: true
  = errors are a sentence, and those of a parameter a list with its place
`;
