/** What stands around the store: leases in time, keys, rates, the outgoing guard, admission, terms. */
import { inFile, type Mutation } from './mutation.ts';

const RATE_STORE = 'control-plane/src/store/accounts/rate-quota-store.ts';
const FETCH = 'control-plane/src/sources/guard/guarded-fetch.ts';
const GUARD = 'control-plane/src/sources/guard/outgoing-guard.ts';
const OUTGOING_URL = 'control-plane/src/sources/guard/outgoing-url.ts';
const PUBLIC_ADDRESS = 'control-plane/src/sources/guard/public-address.ts';
const DIAL = 'control-plane/src/sources/guard/dial.ts';
const ADMISSION = 'inference-node/src/admission.ts';
const SHARES = 'control-plane/src/store/database/request-shares.ts';

const RATE_STORE_TESTS = 'control-plane/test/store/accounts/rate-quota-store.test.ts';
const inRates = inFile('control-plane/test/services/rate-limits.test.ts');
const inRateStore = inFile(RATE_STORE_TESTS, 'rate quotas on sqlite');
const FETCH_TESTS = 'control-plane/test/sources/guard/guarded-fetch.test.ts';
const inAddresses = inFile(FETCH_TESTS, 'addresses behind a name');
const inRedirects = inFile(FETCH_TESTS, 'redirects');
const inConnector = inFile(FETCH_TESTS, 'the pinned connector');
const inImageUrl = inFile('control-plane/test/sources/image-url.test.ts', 'image_url as text');
const inPublicAddress = inFile('control-plane/test/sources/guard/public-address.test.ts');
const inFleetSize = inFile(
  'control-plane/test/domain/fleet-size/wanted-nodes.test.ts',
  'the wanted number of nodes',
);
const inTerms = inFile('inference-node/test/models/commercial-use.test.ts');
const inShares = inFile('control-plane/test/store/database/request-shares.test.ts');
const inAdmission = inFile('inference-node/test/shell/admission.test.ts', 'Admission');

const LEASES_AND_KEYS: readonly Mutation[] = [
  {
    name: 'a lease is never renewed',
    file: 'control-plane/src/services/dispatch/held-lease.ts',
    find: 'setInterval(() => void this.#renew(), this.#timing.renewMs)',
    replace: 'setInterval(() => undefined, this.#timing.renewMs)',
    caughtBy: {
      file: 'control-plane/test/services/dispatch/held-lease.test.ts',
      test: 'a held lease is renewed in full long before it ends, as long as the work goes on',
    },
  },
  {
    name: 'a key is answered with the job of other content',
    file: 'control-plane/src/services/submission/submit-matting.ts',
    find: 'if (playground !== undefined || job.fingerprint === fingerprint) return',
    replace: 'return',
    caughtBy: {
      file: 'control-plane/test/http/routes/callbacks.test.ts',
      test: 'join, replay and 409 come before the address',
    },
  },
];

const inPictures = inFile(
  'control-plane/test/http/connections/slow-callers.test.ts',
  'callers who take the picture as their answer',
);

const PICTURES: readonly Mutation[] = [
  {
    name: 'a reader of a result takes no place',
    file: 'control-plane/src/http/answers/result-file.ts',
    find: 'const leave = readers.enter(file);',
    replace: 'const leave = () => undefined;\n  void readers;',
    caughtBy: inPictures(
      'slow readers of pictures cost little memory, have few places and give them back',
    ),
  },
  {
    name: 'a reader that hung up keeps its place',
    file: 'control-plane/src/http/answers/result-file.ts',
    find: "reply.raw.once('close', leave);",
    replace: '',
    caughtBy: inPictures(
      'who is gone when the picture is opened holds neither a place nor the file',
    ),
  },
  {
    name: 'a picture in another format than Accept takes is made and charged',
    file: 'control-plane/src/services/submission/submit-fields.ts',
    find: "if (choice !== 'none') return choice;",
    replace: "if (choice === 'none') return named ?? DEFAULT_FORMAT;\n  return choice;",
    caughtBy: {
      file: 'control-plane/test/http/routes/picture-answers.test.ts',
      test: 'a contradiction is refused before there is a job, and is not remembered',
    },
  },
];

const RATES: readonly Mutation[] = [
  {
    name: 'a block of the quota is leased twice',
    file: RATE_STORE,
    find: ".where('leased', '=', row.leased)",
    replace: '',
    caughtBy: inRateStore('are never leased twice, however many ask at once'),
  },
  {
    name: 'a block is granted beyond the limit',
    file: 'control-plane/src/domain/rate-quota.ts',
    find: 'Math.min(ask.block, ask.limit - due)',
    replace: 'ask.block',
    caughtBy: inRateStore('are leased in blocks up to the limit, each account and kind on its own'),
  },
  {
    name: 'what was spent in advance is not counted',
    file: 'control-plane/src/domain/rate-quota.ts',
    find: ' + (ask.windowStartMs === windowStartMs ? ask.advance : 0)',
    replace: '',
    caughtBy: inRates('one replica keeps the limit to the request, one at a time or all at once'),
  },
  {
    name: 'the quota of a window that is over counts in the next',
    file: 'control-plane/src/domain/rate-quota.ts',
    find: 'use?.windowStartMs === windowStartMs ? use.leased : 0',
    replace: 'use?.leased ?? 0',
    caughtBy: inRateStore('of a window that is over count for nothing'),
  },
  {
    name: 'requests are not counted',
    file: 'control-plane/src/services/rate-limits.ts',
    find: 'share.left -= 1;',
    replace: '',
    caughtBy: inRates('one replica keeps the limit to the request, one at a time or all at once'),
  },
];

const OUTGOING: readonly Mutation[] = [
  {
    name: 'one public address among several is enough',
    file: GUARD,
    find: 'addresses.every(isOpen)',
    replace: 'addresses.some(isOpen)',
    caughtBy: inAddresses('refuses 10.0.0.1, alone and among public ones'),
  },
  {
    name: "this machine's public address is reached",
    file: GUARD,
    find: 'own.has(address)',
    replace: 'false',
    caughtBy: inAddresses("refuses this machine's own public address"),
  },
  {
    name: 'a name is resolved once for all its redirects',
    file: FETCH,
    find: 'for (let redirects = 0; redirects <= this.#limits.redirectsMax; redirects += 1) {\n      const addresses = await this.#requireAddresses(hostOf(url), request);',
    replace:
      'const addresses = await this.#requireAddresses(hostOf(url), request);\n    for (let redirects = 0; redirects <= this.#limits.redirectsMax; redirects += 1) {',
    caughtBy: inAddresses('checks again for a redirect to the same name'),
  },
  {
    name: 'a redirect is followed wherever its text leads',
    file: FETCH,
    find: 'requireOutgoingUrl(location, this.#guard.policy, from)',
    replace: 'new URL(location, from)',
    caughtBy: inRedirects('302 to a forbidden place is refused, without connecting there'),
  },
  {
    name: 'a redirect leads from https to http',
    file: FETCH,
    find: "from.protocol === 'https:' && to.protocol !== 'https:'",
    replace: 'false',
    caughtBy: inRedirects('does not go from https to http, and does go from http to https'),
  },
  {
    name: 'redirects have no bound',
    file: FETCH,
    find: 'redirects <= this.#limits.redirectsMax',
    replace: 'redirects <= 9',
    caughtBy: inRedirects('follows three, and not a fourth'),
  },
  {
    name: 'a peer that was not checked is spoken to',
    file: DIAL,
    find: ' || !checked.has(socket.remoteAddress)',
    replace: '',
    caughtBy: inConnector('does not speak to a peer that was not checked'),
  },
  {
    name: 'a name is resolved again to connect',
    file: DIAL,
    find: '    lookup,\n',
    replace: '',
    caughtBy: inConnector('does not resolve the name again'),
  },
  {
    name: 'any port is requested',
    file: OUTGOING_URL,
    find: 'if (!policy.allowPrivateAddresses) requirePort(url, policy);',
    replace: '',
    caughtBy: inImageUrl('refuses port'),
  },
  {
    name: 'a password in a URL is taken',
    file: OUTGOING_URL,
    find: "url.username !== '' || url.password !== ''",
    replace: 'false',
    caughtBy: inImageUrl('refuses userinfo'),
  },
  {
    name: 'any scheme is requested',
    file: OUTGOING_URL,
    find: '!DEFAULT_PORTS.has(url.protocol)',
    replace: 'false',
    caughtBy: inImageUrl(
      'on a trusted network takes any address and port, but no other scheme and no userinfo',
    ),
  },
  {
    name: 'a name of a private network is looked up',
    file: OUTGOING_URL,
    find: 'privateNames || !isPrivateName(host)',
    replace: 'true',
    caughtBy: inImageUrl('refuses a name that leads inside'),
  },
  {
    name: 'a literal address is not judged before it is connected to',
    file: OUTGOING_URL,
    find: ': isOpenAddress(host, policy);',
    replace: ': true;',
    caughtBy: inImageUrl('refuses private and metadata'),
  },
  {
    name: 'IPv6 is open but for what is listed',
    file: PUBLIC_ADDRESS,
    find: "globalIpv6.check(address, 'ipv6') && ",
    replace: '',
    caughtBy: inPublicAddress('::1 is not public'),
  },
  {
    name: 'tunnels in IPv6 are public',
    file: PUBLIC_ADDRESS,
    find: " && !specialIpv6.check(address, 'ipv6')",
    replace: '',
    caughtBy: inPublicAddress('2002:7f00:1:: is not public'),
  },
];

const ADMITTED: readonly Mutation[] = [
  {
    name: 'images are admitted without a bound',
    file: ADMISSION,
    find: 'inUse.images >= imagesMax',
    replace: 'false',
    caughtBy: inAdmission('refuses when its places are taken'),
  },
  {
    name: 'megapixels are admitted without a bound',
    file: ADMISSION,
    find: 'megapixels > inUse.megapixelsFree',
    replace: 'false',
    caughtBy: inAdmission('refuses what does not fit beside the others'),
  },
  {
    name: 'bytes of files are admitted without a bound',
    file: ADMISSION,
    find: 'inUse.fileBytes + request.fileBytes > FILE_BYTES_MAX',
    replace: 'false',
    caughtBy: inAdmission('bounds the bytes of the files together'),
  },
  {
    name: 'an image that the node can never hold waits for it',
    file: ADMISSION,
    find: 'megapixels > this.#megapixelsAlone()',
    replace: 'false',
    caughtBy: inAdmission('sends an image that it can never hold to another node'),
  },
  {
    name: 'what is free beside others is what one image may take alone',
    file: ADMISSION,
    find: 'Math.max(0, megapixelsMax - megapixels)',
    replace: 'Math.max(0, this.#megapixelsAlone() - megapixels)',
    caughtBy: inAdmission('refuses what does not fit beside the others'),
  },
  {
    name: 'images that ran together get each other’s mattes',
    file: 'inference-node/src/engine/pool/open-engine-pool.ts',
    find: 'const task = tasks[index];',
    replace: 'const task = tasks.at(-1 - index);',
    caughtBy: {
      file: 'inference-node/test/engine/pool/batches.test.ts',
      test: 'a free engine takes what waits at once, and each picture gets its own matte',
    },
  },
  {
    name: 'an image fails with those that it ran with',
    file: 'inference-node/src/engine/pool/open-engine-pool.ts',
    find: "started ? tasks.length > 1 && cause !== 'device' : soon",
    replace: 'started ? false : soon',
    caughtBy: {
      file: 'inference-node/test/engine/pool/batches.test.ts',
      test: 'one picture whose matte is not a number fails alone',
    },
  },
  {
    name: 'a permit is given back twice',
    file: ADMISSION,
    find: 'if (this.#held.delete(entry)) this.#changed();',
    replace: 'this.#held.delete(entry);\n        this.#changed();',
    caughtBy: inAdmission('gives a permit back once, however often it is released'),
  },
];

const TERMS: readonly Mutation[] = [
  {
    name: 'a model whose weights have no stated licence is permitted',
    file: 'inference-node/src/models/commercial-use.ts',
    find: "commercialUse !== 'yes'",
    replace: "commercialUse === 'no'",
    caughtBy: inTerms('weights unclear, training data yes: what each gate says'),
  },
  {
    name: 'the terms of the training data are not asked for',
    file: 'inference-node/src/models/commercial-use.ts',
    find: "if (gate === 'strict') asked",
    replace: 'if (gate === undefined) asked',
    caughtBy: inTerms('strict starts none of the bundled models, and says so'),
  },
];

const SLEEPING: readonly Mutation[] = [
  {
    name: 'a fleet that sleeps grows without a bound',
    file: 'control-plane/src/domain/fleet-size/wanted-nodes.ts',
    find: 'Math.min(nodesMax, Math.max(nodesMin, unbounded(needs, policy)))',
    replace: 'Math.max(nodesMin, unbounded(needs, policy))',
    caughtBy: inFleetSize('stays within the bounds'),
  },
  {
    name: 'what waits beside idle nodes calls for more of them',
    file: 'control-plane/src/domain/fleet-size/wanted-nodes.ts',
    find: 'return Math.min(wanted, useful);',
    replace: 'return Math.max(wanted, useful);',
    caughtBy: inFleetSize('calls no node for what waits beside idle ones'),
  },
  {
    name: 'a job that no node alive can do makes rounds at every report',
    file: 'control-plane/src/domain/dispatch/dispatch-core.ts',
    find: 'if (incapable) this.#unable.add(job.id);',
    replace: '',
    caughtBy: {
      file: 'control-plane/test/domain/dispatch/dispatch-core.test.ts',
      test: 'a job that no node alive can do, where others may come causes no round by itself: only another node helps it, and that is polled for',
    },
  },
];

const SHARED_DATABASE: readonly Mutation[] = [
  {
    name: 'one account holds every slot of the database',
    file: SHARES,
    find: '{ key: owner.accountId }',
    replace: "{ key: '' }",
    caughtBy: inShares(
      'others read and submit while an account holds its slots and its places to wait',
    ),
  },
  {
    name: 'work within a slot waits for a second one',
    file: SHARES,
    find: 'outsideRequests(work)',
    replace: 'work()',
    caughtBy: inShares('work within a slot, and work of no request, waits for none'),
  },
];

export const SERVICE_MUTATIONS: readonly Mutation[] = [
  ...SHARED_DATABASE,
  ...LEASES_AND_KEYS,
  ...PICTURES,
  ...RATES,
  ...OUTGOING,
  ...ADMITTED,
  ...TERMS,
  ...SLEEPING,
];
