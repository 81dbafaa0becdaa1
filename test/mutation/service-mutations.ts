/** These guard what is around the store: leases, keys, rates, guards, client, remove.bg, memory. */
import { mutationsOf } from './mutation.ts';

export const SERVICE_MUTATIONS = mutationsOf`
file control-plane/database/database.ts
tests control-plane/core/test/request-shares.test.ts
one account holds every slot of the database
  - { key: owner.accountId }
  + { key: '' }
  = others read and submit while an account holds its slots and its places to wait
work within a slot waits for a second one
  - outsideRequests(work)
  + work()
  = work within a slot, and work of no request, waits for none

file control-plane/core/attempts/held-lease.ts
tests control-plane/core/loops-and-gates.test.ts: a held lease
a lease is never renewed
  - setInterval(() => void this.#renew(), this.#timing.renewMs)
  + setInterval(() => undefined, this.#timing.renewMs)
  = is renewed in full long before it ends, as long as the work goes on

file control-plane/core/submission/submit-matting.ts
tests control-plane/core/webhooks/callbacks.test.ts
a key is answered with the job of other content
  - if (unpaid !== undefined || job.fingerprint === fingerprint) return
  + return
  = join, replay and 409 come before the address

file control-plane/core/results/result-download.ts
tests control-plane/core/http/callers.test.ts: callers who take the picture as their answer
a reader of a result takes no place
  - const leave = readers.enter(file);
  + const leave = () => undefined;
  +   void readers;
  = slow readers of pictures cost little memory, have few places and give them back
a reader that hung up keeps its place
  - reply.raw.once('close', leave);
  = who is gone when the picture is opened holds neither a place nor the file

file control-plane/core/submission/matting-request.ts
tests control-plane/core/results/results.test.ts: a picture as the answer
a picture in another format than Accept takes is made and charged
  - if (choice !== 'none') return choice;
  + if (choice === 'none') return named ?? DEFAULT_FORMAT;
  +   return choice;
  = a contradiction is refused before there is a job, and is not remembered

file control-plane/core/rates/rate-limits.ts
tests control-plane/core/keys/accounts.test.ts: rate quotas on sqlite
a block of the quota is leased twice
  - .where('leased', '=', row.leased)
  = are never leased twice, however many ask at once

file control-plane/core/rates/rate-windows.ts
tests control-plane/core/keys/accounts.test.ts: rate quotas on sqlite
a block is granted beyond the limit
  - Math.min(ask.block, ask.limit - due)
  + ask.block
  = are leased in blocks up to the limit, each account and kind on its own
the quota of a window that is over counts in the next
  - use?.windowStartMs === windowStartMs ? use.leased : 0
  + use?.leased ?? 0
  = of a window that is over count for nothing
tests control-plane/core/callers.test.ts: rates
what was spent in advance is not counted
  - spent + (ask.windowStartMs === windowStartMs ? ask.advance : 0)
  + spent
  = one replica keeps the limit to the request, one at a time or all at once

file control-plane/core/rates/rate-limits.ts
tests control-plane/core/callers.test.ts: rates
requests are not counted
  - share.left -= 1;
  = one replica keeps the limit to the request, one at a time or all at once

file control-plane/http/outgoing/outgoing-guard.ts
tests control-plane/core/fetching/urls.test.ts: counted at the dialer
one public address among several is enough
  - addresses.every(isOpen)
  + addresses.some(isOpen)
  = connects to no forbidden address of a name, whatever its other addresses are
tests control-plane/http/outgoing/guarded-requests.test.ts: addresses behind a name
this machine's public address is reached
  - own.has(address)
  + false
  = refuses this machine's own public address

file control-plane/http/outgoing/guarded-fetch.ts
tests control-plane/http/outgoing/guarded-requests.test.ts: addresses behind a name
a name is resolved once for all its redirects
  - for (let redirects = 0; redirects <= this.#limits.redirectsMax; redirects += 1) {
  -       const addresses = await this.#requireAddresses(hostOf(url), request);
  + const addresses = await this.#requireAddresses(hostOf(url), request);
  +     for (let redirects = 0; redirects <= this.#limits.redirectsMax; redirects += 1) {
  = checks again for a redirect to the same name
tests control-plane/http/outgoing/guarded-requests.test.ts: redirects
a redirect is followed wherever its text leads
  - requireOutgoingUrl(location, this.#guard.policy, from)
  + new URL(location, from)
  = 302 to a forbidden place is refused, without connecting there
a redirect leads from https to http
  - from.protocol === 'https:' && to.protocol !== 'https:'
  + false
  = does not go from https to http, and does go from http to https
redirects have no bound
  - redirects <= this.#limits.redirectsMax
  + redirects <= 9
  = follows three, and not a fourth

file control-plane/http/outgoing/outgoing-guard.ts
tests control-plane/http/outgoing/guarded-requests.test.ts: the pinned connector
a peer that was not checked is spoken to
  - undefined || !checked.has(socket.remoteAddress)
  + undefined
  = does not speak to a peer that was not checked
a name is resolved again to connect
  - lookup,
  -     timeout: connectMs,
  + timeout: connectMs,
  = does not resolve the name again

file control-plane/http/outgoing/outgoing-url.ts
tests control-plane/core/fetching/urls.test.ts: image_url
any port is requested
  - if (!policy.allowPrivateAddresses) requirePort(url, policy);
  = refuses port
a password in a URL is taken
  - url.username !== '' || url.password !== ''
  + false
  = refuses userinfo
any scheme is requested
  - !DEFAULT_PORTS.has(url.protocol)
  + false
  = on a trusted network takes any address and port, but no other scheme and no userinfo
a name of a private network is looked up
  - privateNames || !isPrivateName(host)
  + true
  = refuses names that lead inside
a literal address is not judged before it is connected to
  - : isOpenAddress(host, policy);
  + : true;
  = refuses ipv4 private

file control-plane/http/outgoing/open-addresses.ts
tests control-plane/core/fetching/urls.test.ts: addresses
IPv6 is open but for what is listed
  - globalIpv6.check(address, 'ipv6') && !specialIpv6.check(address,
  + !specialIpv6.check(address,
  = ::1 is not public
tunnels in IPv6 are public
  - 'ipv6') && !specialIpv6.check(address, 'ipv6')
  + 'ipv6')
  = 2002:7f00:1:: is not public

file inference-node/serving/admission.ts
tests inference-node/serving/admission.test.ts: Admission
images are admitted without a bound
  - inUse.images >= imagesMax
  + false
  = refuses when its places are taken
megapixels are admitted without a bound
  - megapixels > megapixelsFree(budget, inUse)
  + false
  = refuses what does not fit beside the others
bytes of files are admitted without a bound
  - inUse.fileBytes + request.fileBytes > FILE_BYTES_MAX
  + false
  = bounds the bytes of the files together
an image that the node can never hold waits for it
  - megapixels > mostAlone(this.limits)
  + false
  = sends an image that it can never hold to another node
what is free beside others is what one image may take alone
  - Math.max(0, budget.megapixelsMax - megapixels)
  + Math.max(0, mostAlone(budget) - megapixels)
  = refuses what does not fit beside the others
a permit is given back twice
  - if (this.#held.delete(entry)) this.#changed();
  + this.#held.delete(entry);
  +         this.#changed();
  = gives a permit back once, however often it is released

file inference-node/serving/selectables/engine-memory.ts
tests inference-node/serving/selectables/selectables.test.ts
a load begins before what leaves is gone
  - ({ state }) => state !== 'waiting');
  + ({ state }) => state === 'held');
  = where memory is short the one longest without an image gives way, none that has one
pictures get the memory of processes that are not gone yet
  - this.#bytesOf(() => true)
  + this.bytesWanted
  = where memory is short the one longest without an image gives way, none that has one

file inference-node/serving/selectables/selectables.ts
tests inference-node/serving/selectables/selectables.test.ts
engines with an image in them give way to another model
  - set.idleSinceMs !== undefined && !sets
  + !sets
  = where memory is short the one longest without an image gives way, none that has one
a load takes the memory that a large image waits for
  - Math.max(megapixels, this.#largeImages.megapixelsKept);
  + megapixels;
  = images too large beside engines, and engines, go by turns
what does not fit is advertised
  - this.#fits(plan, sets) && !sets
  + !sets
  = what never fits is not advertised, and the log says what it needs

file inference-node/serving/selectables/engine-set.ts
tests inference-node/serving/selectables/selectables.test.ts
engines that nobody uses stay for ever
  - setTimeout(() => this.unload('idle'), this.#parts.idleMs)
  + undefined
  = it is unloaded when no image has wanted it for the time given; the own plan stays

file inference-node/serving/engine/pool/open-engine-pool.ts
tests inference-node/serving/engine/pool/engine-pool.test.ts
an image is run again in each engine that it kills
  - const mayRunAgain = !started && soon
  + const mayRunAgain = soon
  = an answer that is not a number is NODE_FAULT, and the engine is replaced

file inference-node/serving/models/plan.ts
tests inference-node/serving/models/manifest.test.ts
a model whose weights have no stated licence is permitted
  - commercialUse !== 'yes'
  + commercialUse === 'no'
  = weights unclear, training data yes: what each gate says
the terms of the training data are not asked for
  - if (gate === 'strict') asked
  + if (gate === undefined) asked
  = strict starts none of the bundled models, and says so

file control-plane/core/dispatch/dispatch-core.ts
tests control-plane/core/dispatch/dispatch-core.test.ts: a job that no node alive can do, where others may come
a job that no node alive can do makes rounds at every report
  - if (incapable) this.#unable.add(job.id);
  = causes no round by itself: only another node helps it, and that is polled for

file client/src/client.ts
tests test/client/client-faults.test.ts
a failure that passes is submitted again under a new key
  - this.#post(PATHS.matting, submission, idempotencyKey, patience)
  + this.#post(PATHS.matting, submission, newKey(), patience)
  = a failure that passes is submitted again, under the same key

file client/src/patience.ts
tests test/client/client-faults.test.ts
the client waits as it likes, whatever it is told
  - error.retryAfterMs ?? backoff.next()
  + backoff.next()
  = it waits as long as it is told

file client/src/result-file.ts
tests test/client/client-faults.test.ts
a picture that broke off is taken for whole
  - if (sizeBytes !== undefined && this.#received !== sizeBytes) {
  + if (sizeBytes === -1) {
  = an answer that ends early is not taken for whole

file client/src/command/picture-run.ts
tests test/client/remove.test.ts
a run of the command has a key of its own for each picture
  - { ...call, idempotencyKey: line.key ?? '' }
  + { ...call }
  = the same picture under two names is paid once, and its line says all

file client/src/command/picture-key.ts
tests test/client/remove.test.ts
another wish is the same request
  - [KEY_VERSION, sha256, run, asked]
  + [KEY_VERSION, sha256, run]
  = the same picture under two names is paid once, and its line says all

file client/src/command/find-pictures.ts
tests test/client/remove.test.ts
a result takes the place of a picture that is read
  - if (source !== undefined) overwritten.push(source);
  = results that would take the same place are refused before any is paid

file client/src/command/journal.ts
tests test/client/remove.test.ts
what the journal has is taken for done, whatever was asked for
  - done?.key === key ? done.bytes : undefined
  + done?.bytes
  = the same picture under two names is paid once, and its line says all

file control-plane/core/submission/submit-matting.ts
tests control-plane/test/compose/replicas.test.ts: two replicas on sqlite › remove.bg
a job whose time is over answers for ever
  - if (!isForgotten(job, rememberedMs)) return job;
  + if (rememberedMs >= 0) return job;
  = replays for ten minutes, then makes one new job of requests on both replicas

file control-plane/core/submission/fingerprint.ts
tests control-plane/test/compose/replicas.test.ts: two replicas on sqlite › remove.bg
the derived key forgets what was asked for
  - apiKeyId: string, fingerprint: string): string {
  + apiKeyId: string, fingerprint: string): string {
  +   fingerprint = '';
  = makes jobs of their own for other parameters, other keys, and other interfaces

file control-plane/compat/picture-form.ts
tests control-plane/removebg/removebg.test.ts: the answer
an empty field counts as a source
  - if (target.kind !== 'text' || this.#isEmpty) return;
  + if (target.kind !== 'text') return;
  = is made of what is not empty: clients send every field they know

file control-plane/removebg/removebg-errors.ts
tests control-plane/removebg/removebg.test.ts: an error of the remove.bg interface
a failure that may pass is told as the picture’s fault
  - return retryable
  + return !retryable
  = of a job: PROCESSING_FAILED, every attempt was lost, is processing_failed

file control-plane/mcp/mcp-interface.ts
tests control-plane/mcp/mcp.test.ts
a page under any name may call /mcp with a key
  - origin !== own
  + origin === ''
  = pages of other origins are refused, before anything is read

file control-plane/mcp/call-tools.ts
tests control-plane/mcp/mcp.test.ts
the rate of submissions is not asked for agents
  - await calling.admitSubmission();
  + void calling;
  = what the account, the service or the picture lacks is told with what to do
agents are told of a result whose file is gone
  - if (isFinal(submitted)) await
  + if (isFinal(submitted) && false) await
  = a result whose file is gone is told of as lost

file control-plane/mcp/arguments.ts
tests control-plane/mcp/mcp.test.ts
a long text stands for the picture wherever it was
  - if (longTexts > 0 && !isImage) {
  + if (longTexts > 2 && !isImage) {
  = what is wrong with a call is told by name, takes nothing and leaves nothing

file control-plane/core/nodes/attempt-outcome.ts
tests control-plane/test/compose/replicas.test.ts: two replicas on sqlite › remove.bg
an image that a node refuses for what was asked is tried on every node
  - about === 'picture' || about === 'options'
  + about === 'picture'
  = takes a region that the node finds empty for the request’s fault, and asks no other

file inference-node/model-tools/onnx/mend.ts
tests inference-node/model-tools/onnx/mend.test.ts
a mended deformable convolution samples where its offsets do not lead
  -   return [nodeOf('DeformConv', inputs, conv.outputs[0], attributes)];
  +   const still = [block.offset, block.offset];
  +   const at = inputs.with(2, 'still');
  +   return [nodeOf('Sub', still, 'still'), nodeOf('DeformConv', at, conv.outputs[0], attributes)];
  = a mended graph answers as its stock form, also from beyond the border

file inference-node/model-tools/weights/address.ts
tests inference-node/model-tools/weights/address.test.ts
a token goes along redirects to any host
  -       token?.origin === url.origin ? { authorization
  +       token !== undefined ? { authorization
  = a token goes to the first host alone, and a file behind a login asks for one

file inference-node/model-tools/weights/download.ts
tests inference-node/model-tools/weights/address.test.ts
a file is taken for the model whatever its sum
  -     if (sha256 === wanted) return
  +     if (sha256 !== '') return
  = a file that is missing, too large, without an end, too slow or another is refused

file inference-node/model-tools/adding/workshop.ts
tests inference-node/model-tools/adding/adding.test.ts
what a killed adding had placed stays
  -     if (there !== placing.version) await
  +     if (there === '') await
  = killed at prepare there is nothing or the whole, and the next one clears up
a file of the model says what is removed
  - const PLACING_FILE = '.placing.json';
  + const PLACING_FILE = 'placing.json';
  = weights beside the graph have no say in what is removed

file inference-node/serving/onnx/tensor-heads.ts
tests inference-node/model-tools/adding/adding.test.ts
weights are read from another folder
  - field === ENTRY_VALUE) entry
  + field === ENTRY_VALUE && entry.isLocation) entry
  = a location is found wherever its entry has it

file inference-node/serving/engine/probe/probe-process.ts
tests inference-node/model-tools/probing/probe-graph.test.ts
a graph that is probed takes what memory it wants
  -       dataBytesMax: this.#memoryMaxBytes + RUNTIME_RESERVED_BYTES,
  +       dataBytesMax: undefined,
  = what fails is refused by its cause, within bounds of memory and time

file inference-node/model-tools/probing/verdict.ts
tests inference-node/model-tools/probing/verdict.test.ts
a matte that shows the background is taken for one of the subject
  -   if (mean < -APART && apart.every(value => value < -APART_EACH)) return true;
  = a matte is inverted where every picture says so

file inference-node/model-tools/preparing/added-graph.ts
tests inference-node/model-tools/preparing/added-graph.test.ts
a mended graph is used whatever its blocks answer
  -     if (wrong === 0) return undefined;
  +     return undefined;
  = a graph whose mended form answers otherwise, or cannot be compared, runs as it is
a mended graph is used whatever its matte is
  -     if (difference <= ALPHA_DIFFERENCE_MAX) return undefined;
  +     return undefined;
  = a graph whose mended form answers otherwise, or cannot be compared, runs as it is

file inference-node/serving/engine/child/form-ends.ts
tests inference-node/serving/engine/child/form-ends.test.ts
the matte of a letterbox is stretched over the picture
  - return cutOut(matte, canvas.size, canvas.place);
  + return matte;
  = a letterbox is black around the picture, and its matte is that of the picture
a trimap reaches the graph as bytes
  - values: Float32Array.from(bytes, toShare)
  + values: Float32Array.from(bytes)
  = beside the normalised picture a trimap is the fourth channel, 0 to 1, whatever the form

file inference-node/serving/picture/matte/trimap.ts
tests inference-node/serving/picture/matte/trimap.test.ts
what refines changes what the others are sure of
  - if (trimap[i] !== TRIMAP.unsure) continue;
  = what is refined › counts where the matte is unsure, ever less towards the sure
the band ends in a seam
  - const weight = Math.max(0, 2 * shares[i]! - 1);
  + const weight = 1;
  = what is refined › counts where the matte is unsure, ever less towards the sure
a hard edge is taken for sure
  - lacks(-1, CERTAIN_ABOVE)
  + lacks(CERTAIN_BELOW, CERTAIN_ABOVE)
  = a trimap › is unsure around all that is not surely one or the other, hard edges too

file inference-node/serving/models/plan.ts
tests inference-node/serving/selectables/look.test.ts
a plan runs a model in a role that its graph cannot have
  - if ((graph.trimap === true) === (role === 'refine')) return;
  + if (role !== undefined) return;
  = what takes a trimap refines in plans alone, and what takes none does not

file inference-node/serving/pipeline.ts
tests inference-node/serving/http-endpoints.test.ts: a model that refines
what had nothing to refine is told of as missing
  - if (picture === undefined) return 'unneeded';
  + if (picture === undefined) return 'missing';
  = does not run where nothing is unsure, and is not missed

file inference-node/serving/picture/infer-plan.ts
tests inference-node/serving/http-endpoints.test.ts: a second look by the same model
a framed look that is not believed is the last one
  - if (joined === undefined) continue;
  + if (joined === undefined) break;
  = is taken of the picture as it is where the framed one is not believed

file inference-node/serving/picture/framed-look.ts
tests inference-node/serving/picture/framed-look.test.ts: a framed look
a picture of nothing becomes the subject of its frame
  - return Math.min(...sides) < rules.sideShareMax;
  + return sides.length > 0;
  = is not believed where it shows the picture itself
a thing that lies whole in the picture is taken for a close-up
  - if (Math.max(...sides) < rules.cutOffShareMin) return false;
  + void rules.cutOffShareMin;
  = is not believed where the border does not cut the subject off
a look that saw nothing clearly becomes the subject
  - if (unsureShare(framed.alpha) >= rules.unsureShareMax) return false;
  + void rules.unsureShareMax;
  = is not believed where it shows nothing clearly
a framed look takes away what the first look shows
  - if (first !== undefined && keptShare(framed, first) < rules.keptShareMin) return false;
  + void keptShare;
  = is not believed where it loses some of what the first look shows
a framed look adds what the opinion denies
  - if (agreement < agreementOf(first, opinion) - rules.agreementLossMax) return false;
  + void rules.agreementLossMax;
  = is not believed where the opinion sees what the first look sees

file inference-node/serving/engine/pool/engine.ts
tests inference-node/serving/engine/pool/engine-pool.test.ts
three flat pictures of a model that rescales take the node with them
  - if (head.kind === 'failed' && head.ofPicture) {
  + if (head.kind === 'failed' && head.ofPicture && task.settled) {
  = pictures of which a graph of others makes no matte end alone, their engine goes on

file inference-node/serving/process/buffer-pool.ts
tests inference-node/serving/process/frames.test.ts
memory that is given back twice goes to two images
  - if (!this.#lent.delete(buffer)) return;
  + this.#lent.delete(buffer);
  = no two users have the same buffer

file inference-node/serving/picture/pool/open-picture-pool.ts
tests inference-node/serving/shared-buffers.test.ts
an image's memory is the next one's while its engine has yet to read it
  - this.#modelInputs.push(...parts);
  + for (const part of parts) this.#pool.giveBack(part);
  = each matte is of its own picture, beside callers that go and children that die

file control-plane/core/dispatch/dispatch-core.ts
tests control-plane/core/dispatch/dispatch-core.test.ts: a round
behind a full listing nothing is thought to wait
  - jobs.filter(isOfKind).length >= eachMax
  + jobs.filter(isOfKind).length > eachMax
  = knows that behind a full listing more may wait, though all of it began

file proto/contract/errors.ts
tests proto/contract/test/errors.test.ts
an expired result is not found
  - RESULT_EXPIRED: ofJob(410,
  + RESULT_EXPIRED: ofJob(404,
  = every public code has the status, the retry rule and the subject that were promised

file proto/contract/grpc-status.ts
tests proto/contract/test/wire.test.ts: fromServiceError
a node is blamed for a picture that it refuses by a newer code
  - if (sent !== undefined && flag === 'false'
  + if (sent !== undefined && flag === 'none'
  = takes a code of the future that blames the request for a fault of the image

file client/src/command/stops-the-run.ts
tests test/client/newer-service.test.ts
a code of the future stops a folder
  - return STATUSES_OF_ALL.includes(status);
  + return true;
  = 400 IMAGE_TOO_SMALL fails its picture, and the next ones are sent
a refused account is tried for each picture of a folder
  - return STATUSES_OF_ALL.includes(status);
  + return false;
  = 402 CREDITS_FROZEN stops the folder: no picture fares better
`;
