// A batch's file, read whole in the page before anything is sent: what most often is wrong with a
// line, and about how many tokens there are. The server judges again, by every rule.
const coserveCheck = (() => {
  const MAX_LINES = 50000, MAX_SHOWN = 200, MAX_ID = 512;

  // As the service estimates: four characters of ASCII a token, two of others.
  function tokens(text) {
    let ascii = 0;
    for (let at = 0; at < text.length; at += 1) if (text.charCodeAt(at) < 128) ascii += 1;
    return Math.floor(ascii / 4) + Math.ceil((text.length - ascii) / 2);
  }
  function contentTokens(content) {
    if (typeof content === "string") return tokens(content);
    if (Array.isArray(content)) return content.reduce((sum, part) => sum + contentTokens(part?.text ?? part?.content ?? (typeof part === "string" ? part : "")), 0);
    return 0;
  }
  function promptTokens(body) {
    if (Array.isArray(body.messages)) return body.messages.reduce((sum, one) => sum + 4 + contentTokens(one?.content), 0);
    return contentTokens(body.prompt ?? body.input ?? "");
  }

  function judge(text, lineNo, report, endpoint, seen) {
    const wrong = (words) => {
      report.numErrors += 1;
      if (report.errors.length < MAX_SHOWN) report.errors.push([lineNo, words]);
    };
    let line;
    try {
      line = JSON.parse(text);
    } catch {
      return wrong("This line is not JSON.");
    }
    if (line === null || typeof line !== "object" || Array.isArray(line)) return wrong("A line must be a JSON object.");
    const id = line.custom_id;
    if (typeof id !== "string" || !id || id.length > MAX_ID) wrong(`custom_id must be a text of 1 to ${MAX_ID} characters.`);
    else if (seen.has(id)) wrong(`custom_id is the same as that of line ${seen.get(id)}.`);
    else seen.set(id, lineNo);
    if (line.method !== "POST") wrong('method must be "POST".');
    if (line.url !== endpoint) wrong(`url must be "${endpoint}".`);
    const body = line.body;
    if (body === null || typeof body !== "object" || Array.isArray(body)) return wrong("body must be an object.");
    if (typeof body.model !== "string" || !body.model) wrong("body.model must name a model.");
    else if (report.model === null) report.model = body.model;
    else if (body.model !== report.model) wrong(`body.model must be that of the lines before, "${report.model}".`);
    report.promptTokens += promptTokens(body);
    report.answerTokens += endpoint.endsWith("/embeddings") ? 0 : Number(body.max_completion_tokens ?? body.max_tokens ?? body.max_output_tokens) || 256;
  }

  return async (file, endpoint, wanted, onProgress) => {
    const report = { numLines: 0, numErrors: 0, errors: [], model: null, promptTokens: 0, answerTokens: 0 };
    const seen = new Map();
    const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", lineNo = 0, numRead = 0;
    const take = (text) => {
      lineNo += 1;
      if (!text.trim()) return;
      report.numLines += 1;
      if (report.numLines <= MAX_LINES) judge(text, lineNo, report, endpoint, seen);
    };
    for (;;) {
      const { done, value } = await reader.read();
      if (!wanted()) {
        await reader.cancel();
        return null;
      }
      if (done) break;
      numRead += value.length;
      onProgress(report.numLines, numRead / file.size);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      lines.forEach(take);
    }
    if (rest) take(rest);
    if (report.numLines > MAX_LINES) {
      report.numErrors += 1;
      report.errors.unshift([null, `The file has ${report.numLines} requests; the limit is ${MAX_LINES}.`]);
    }
    return report;
  };
})();
