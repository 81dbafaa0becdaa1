import { guardsOf } from './guard.ts';

export const NODE_GUARDS = guardsOf`
inference-node/model-tools/adding/stated-manifest.ts by inference-node/model-tools/adding/adding.test.ts
writeDraft | a draft has what the graph says, and completed it states the rest
  -     await writeFile(path, json, { flag: 'wx' });
  +     await writeFile(path, json, { flag: 'w' });
inference-node/model-tools/adding/staging-folder.ts by inference-node/model-tools/adding/adding.test.ts
clear | !== placing | killed at prepare there is nothing or the whole, and the next one clears up
PLACING_FILE | weights next to the graph do not decide what is removed
inference-node/model-tools/onnx/mend.ts by inference-node/model-tools/onnx/mend.test.ts
deformConv | a mended graph answers as its stock form, also from beyond the border
  - integers('dilations', block.dilations)
  + integers('dilations', [1, 1])
inference-node/model-tools/preparing/added-graph.ts by inference-node/model-tools/preparing/added-graph.test.ts
compareEachBlock | if ( | a graph whose mended form answers otherwise, or cannot be compared, runs as it is
compareMattes | if ( | a graph whose mended form answers otherwise, or cannot be compared, runs as it is
inference-node/model-tools/preparing/prepare.ts by inference-node/model-tools/preparing/prepared-bytes.test.ts
prepareGraph | ...(precision === 'fp16' | a revision always writes the same bytes, so a change of the passes has another number
inference-node/model-tools/probing/probe-graph.ts by inference-node/model-tools/probing/probe-graph.test.ts
matteOf | if (most | an answer that is no matte is refused
inference-node/model-tools/weights/address-client.ts by inference-node/model-tools/weights/address-client.test.ts
#request | ? { authorization | a token goes to the first host alone, and a file that needs a login requests one
inference-node/model-tools/weights/download.ts by inference-node/model-tools/weights/address-client.test.ts
#checked | === wanted | a file that is missing, too large, without an end, too slow or another is refused
inference-node/serving/admission.ts by inference-node/serving/admission.test.ts: Admission
admit | if (inUse.images | refuses when its slots are taken
admit | if (megapixels > inUse | refuses what does not fit next to the others
admit | if (inUse.fileBytes | bounds the bytes of the files together
admit | if (megapixels > mostAlone | sends an image that it can never hold to another node
megapixelsFree | budget. | refuses what does not fit next to the others
release | gives a permit back once, however often it is released
inference-node/serving/engine/child/form-io.ts by inference-node/serving/engine/child/form-io.test.ts
answer | cutOut | a letterbox is black around the picture, and its matte is that of the picture
constructor | toShare | a trimap is the fourth channel, 0 to 1, in every form of input
inference-node/serving/engine/child/form-io.ts by inference-node/serving/engine/child/loaded-model.test.ts
answer | requireAnswerSize | an answer over the bound is refused, as it is in a probe
inference-node/serving/engine/child/loaded-model.ts by inference-node/serving/engine/child/loaded-model.test.ts
run | !(await | an error of a graph is the fault of the picture where the check picture is answered
inference-node/serving/engine/pool/engine.ts by inference-node/serving/engine/pool/added-engines.test.ts
#spawn | dataBytesMax: | a graph that wants gigabytes for a picture does not get them, and serves the next one
#describeTooMuch | if (keptBytes | an engine that keeps more than is counted for it is restarted, and its picture is served
#describeEnd | === 'run' | pictures of which an engine dies for want of memory are at fault, however many they are
inference-node/serving/engine/pool/engine.ts by inference-node/serving/engine/pool/engine-pool.test.ts
#onRunEnd | 'failed' & | pictures of which a graph of others makes no matte end alone, their engine continues
inference-node/serving/engine/pool/idle-engines.ts by inference-node/serving/engine/pool/idle-engines.test.ts
#openEngines | await within | engines of a small machine › wait for the last process of those before
#awaitIdle | > 0 | engines of a small machine › stay while an image is in them
inference-node/serving/engine/pool/open-engine-pool.ts by inference-node/serving/engine/pool/engine-pool.test.ts
#loseRun | && soon | an answer that is not a number is NODE_FAULT, and the engine is replaced
inference-node/serving/engine/probe/probe-process.ts by inference-node/model-tools/probing/probe-graph.test.ts
constructor | a graph that fails is refused with its cause, within bounds of memory and time
  -       dataBytesMax: this.#memoryMaxBytes + RUNTIME_RESERVED_BYTES,
  +       dataBytesMax: undefined,
inference-node/serving/grpc/callers.ts by inference-node/serving/grpc/callers.test.ts: tokens of files
identify | ? FLEET | open the node to nobody when the last one goes
know | work both while they change, and the old one no more once it is gone
inference-node/serving/grpc/matte-handler.ts by inference-node/serving/grpc/matte-handler.test.ts
#withPermit | permit.release | an error of a stage › goes out by its code, without its secrets, and frees everything
inference-node/serving/models/cache-files.ts by inference-node/serving/prepared/cpu-runtime.test.ts
whyUnsafeToRun | if ((mode | a compiled graph that another user may write is compiled again, and never run from their folder
whyUnsafeToRun | if (uid | a compiled graph of another user is not run
inference-node/serving/models/plan.ts by inference-node/serving/models/manifest.test.ts
refusalsOf | !== 'yes' | weights unclear, training data yes: what each gate says
refusalsOf | 'strict' | strict starts none of the bundled models, and says so
parsePlanOutlines | !SELECTABLE_NAME | > PLANS_MAX | a file of plans that is wrong is refused
requireRole | === true | a model with a trimap refines in plans alone, and a model without one never refines
inference-node/serving/node-state.ts by inference-node/serving/http-endpoints.test.ts
answer | !isSentByService | the HTTP side › tells figures to nobody who was led here by somebody else
inference-node/serving/onnx/tensor-heads.ts by inference-node/model-tools/adding/adding.test.ts
walk | entry.values.push | a location is found wherever its entry has it
inference-node/serving/picture/children/find-heif-decoder.ts by inference-node/serving/picture/codecs/heif/fence.test.ts
findHeifDecoder | if (! | installed decoders are found in order, and tried
isSafeLibheif | isAtLeast | a start names what has holes and what is missing
inference-node/serving/picture/children/heif-decoder.ts by inference-node/serving/picture/codecs/heif/fence.test.ts
moduleCommand | '--permission' | a module reads no file, starts no program, loads no addon
inference-node/serving/picture/children/limited-child.ts by inference-node/serving/picture/codecs/heif/fence.test.ts
UNPRIVILEGED | '--no | neither has a capability, nor a way to one
inference-node/serving/picture/codecs/decode.ts by inference-node/serving/picture/codecs/heif/heic.test.ts
decodeFile | requireSize(stored | the decoded size is bounded and declared, even if little of it is shown
inference-node/serving/picture/codecs/thumbnail.ts by inference-node/serving/picture/codecs/thumbnail.test.ts
encodeThumbnail | if ( | a thumbnail › has no more bytes than allowed, of noise too, or there is none
inference-node/serving/picture/framed-run.ts by inference-node/serving/picture/framed-run.test.ts: a framed look
isBelieved | min( | is not believed where it shows the picture itself
isBelieved | if (Math | is not believed where the border does not cut the subject off
isBelieved | is not believed where it shows nothing clearly
isBelieved | if (first !== undefined && keptShare | is not believed where it loses some of what the first look shows
isBelieved | if (agreement < | is not believed where the opinion sees what the first look sees
inference-node/serving/picture/infer-plan.ts by inference-node/serving/http-endpoints.test.ts
inferPlan | if (joined === undefined | a second look by the same model › is taken of the picture as it is where the framed one is not believed
inference-node/serving/picture/infer-plan.ts by inference-node/serving/picture/closer-look.test.ts: a plan
addCloserLooks | if (!isCloserBelieved | keeps the whole picture where it does not believe the look at one of several
inference-node/serving/picture/matte/picture-part.ts by inference-node/serving/picture/matte/picture-part.test.ts: a part of a picture
fades | Math.min(1 | shows nothing outside, and fades at its own sides alone
inference-node/serving/picture/matte/trimap.ts by inference-node/serving/picture/matte/trimap.test.ts
replaceUnsure | if (trimap[ | max(0 | the refined matte › counts where the matte is unsure, and less towards certain areas
createTrimap | lacks(- | a trimap › is unsure around all that is not surely one or the other, hard edges too
inference-node/serving/picture/pool/open-picture-pool.ts by inference-node/serving/picture/pool/picture-pool.test.ts
onEnd | < FAILED | a worker that dies while the pool opens is replaced, and the pool opens
inference-node/serving/picture/pool/open-picture-pool.ts by inference-node/serving/shared-buffers.test.ts
decode | this.#modelInputs | each matte is of its own picture, despite callers that leave and children that die
inference-node/serving/picture/worker/finish.ts by inference-node/serving/picture/finishing/finish.test.ts
layOutFrame | requireFrame | a frame that the subject makes larger than it may be › is refused by the name of its field, and one that is bounded is made
inference-node/serving/picture/closer-look.ts by inference-node/serving/picture/closer-look.test.ts
isCloserBelieved | if (unsure | a closer look › is not believed where it is less sure than the first look
isCloserBelieved | return shown | a closer look › is not believed where what it shows goes on outside of the part
partsAround | if (isSmall | the part around a small subject › has its box with a margin, in the pixels of the picture
joinNear | if (!isNear | small subjects that lie apart › share a part with those near them
inference-node/serving/pipeline.ts by inference-node/serving/grpc/finishing.test.ts
#pixelStages | requireMakeable | a header with finishing › that only the picture shows to be too large ends before a model runs
inference-node/serving/pipeline.ts by inference-node/serving/http-endpoints.test.ts
runModel | 'unneeded' | a model that refines › does not run where nothing is unsure, and is not missed
inference-node/serving/pipeline.ts by inference-node/serving/pipeline.test.ts
#stages | signal), | a caller that goes away › in acquire is heard there, and everything comes back
#pixelStages | signal)) | a caller that goes away › in decode is heard there, and everything comes back
#pixelStages | runPlan | a caller that goes away › in infer is heard there, and everything comes back
#pixelStages | finish( | a caller that goes away › in finish is heard there, and everything comes back
#stages | finally | an error › in decode is what the caller hears, and everything comes back
inference-node/serving/process/buffer-pool.ts by inference-node/serving/process/frames.test.ts
giveBack | no two users have the same buffer
inference-node/serving/process/frame-reader.ts by inference-node/serving/process/frames.test.ts
#completeLengths | if ( | frames › a child whose answers are bounded sends no larger part
`;
