"""Words of surveys on health, study, work and daily life: what random surveys are composed of.

The tokenizer of the tiny base learns its vocabulary from them, so they hold the words that real surveys of this kind
use. Scales run from the lowest to the highest. A question is one of QUESTIONS with its blanks filled from FILLERS.
"""

from __future__ import annotations

from collections.abc import Mapping


def _items(text: str) -> tuple[str, ...]:
    """Split at semicolons; line breaks count as blanks."""
    return tuple(" ".join(item.split()) for item in text.split(";"))


def _rows(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(_items(line) for line in text.strip().splitlines())


SCALES = _rows("""
    no; yes
    never; always
    low; medium; high
    low; moderate; high
    never; sometimes; often
    never; sometimes; often; almost always
    never; rarely; sometimes; often
    never; rarely; sometimes; often; always
    never; a few times; monthly; weekly; daily
    almost never; sometimes; very often
    not at all; a little; somewhat; very much
    not at all; several days; more than half the days; nearly every day
    did not apply; applied to some degree; applied a good part of the time; applied most of the time
    not at all; to some degree; to a considerable degree; very much
    none; mild; moderate; severe
    normal; mild; moderate; severe; extremely severe
    none; mild; moderate; severe; very severe
    very low; low; average; high; very high
    very poor; poor; fair; good; very good
    poor; fair; good; very good; excellent
    unhealthy; moderate; healthy
    very easy; somewhat easy; neither easy nor difficult; somewhat difficult; very difficult
    very difficult; difficult; neutral; easy; very easy
    very hard; hard; neither; easy; very easy
    not open; rather not; neutral; rather open; very open
    strongly disagree; disagree; neutral; agree; strongly agree
    disagree; neither agree nor disagree; agree
    disagree strongly; disagree moderately; disagree a little; neither; agree a little; agree moderately; agree strongly
    very dissatisfied; dissatisfied; neutral; satisfied; very satisfied
    very unlikely; unlikely; likely; very likely
    much worse; worse; the same; better; much better
    less; the same; more
    not important; slightly important; important; very important
    no; partly; completely
    no; rather no; rather yes; yes
    unaware; aware; well aware
    beginner; intermediate; advanced; expert
    less than 5 hours; 5-6 hours; 7-8 hours; more than 8 hours
    under 18; 18-24; 25-34; 35-44; 45-54; 55-64; 65 or older
    1-5; 6-25; 26-100; 100-500; 500-1000; more than 1000
    go out every day; 1-14 days; 15-30 days; 31-60 days; more than 2 months
    less than a month; 1-6 months; 6-12 months; 1-2 years; more than 2 years
    less than high school; high school; university degree; graduate degree
    primary school; secondary school; college; bachelor; master; doctorate
    first year; second year; third year; fourth year
    small; medium; large
    rural; suburban; urban
    0; 1; 2; 3
    1; 2; 3; 4
    0; 1; 2; 3; 4
    1; 2; 3; 4; 5
    1; 2; 3; 4; 5; 6; 7
    0; 1; 2; 3; 4; 5; 6; 7; 8; 9; 10
""")

OPTIONS = _rows("""
    yes; no
    yes; no; maybe
    yes; no; don't know
    yes; no; not sure
    yes; no; possibly; don't know
    yes; no; prefer not to say
    yes; no; not applicable
    yes; no; some of them
    true; false
    male; female
    female; male; other
    woman; man; non-binary; prefer not to say
    single; married; divorced; widowed
    never married; currently married; previously married
    student; employed; self-employed; unemployed; retired
    student; business; corporate; housewife; others
    full-time; part-time; contract
    office; home; hybrid
    always remote; sometimes remote; never remote
    morning; evening; night; rotating
    bachelor; master; doctorate; class 12; other
    medicine; law; engineering; arts; science; business; education
    front-end developer; back-end developer; designer; manager; support; executive; sales; other
    depression; anxiety disorder; bipolar disorder; attention deficit; eating disorder; other
    therapy; medication; exercise; meditation; nothing
    doctor; psychologist; friend; family; nobody
    house; apartment; dormitory; shared room
    bus; car; bicycle; train; on foot
    tea; coffee; water; juice
    agnostic; atheist; buddhist; christian; hindu; jewish; muslim; sikh
    asian; black; white; arab; indigenous; other
    heterosexual; bisexual; homosexual; asexual; other
    right; left; both
    never; currently; previously
    asian; white; black; arab; native american; other
    no; not sure; observed; experienced
    english; spanish; french; german; hindi; malay; arabic; chinese
    north; south; east; west
    red; blue; green; yellow; black; white
    group a; group b; group c
    improved; unchanged; worse
    public; private; none
    physical health; mental health; both the same
""")

COUNTRIES = _items("""united states; united kingdom; canada; germany; netherlands; ireland; australia; france; india;
    new zealand; poland; switzerland; south africa; sweden; italy; belgium; brazil; israel; finland; mexico; austria;
    russia; greece; singapore; portugal; spain; japan; china; malaysia; indonesia; philippines; turkey""")
CITIES = _items("""delhi; mumbai; hyderabad; jaipur; london; paris; berlin; new york; madrid; rome; vienna; tokyo""")
PROFESSIONS = _items("""student; teacher; nurse; doctor; lawyer; architect; engineer; accountant; pharmacist; chef;
    manager; pilot; farmer; driver; salesperson""")
DEGREES = _items("""school; bachelor; master; doctor; diploma; BSc; MSc; BA; MA; MBA; PhD; LLB; class 12""")

NUMBERS: tuple[tuple[str, int, int, int], ...] = (
    ("age", 16, 90, 0),
    ("age in years", 18, 75, 0),
    ("hours of sleep", 3, 12, 1),
    ("hours of work a week", 5, 80, 0),
    ("work or study hours", 0, 12, 0),
    ("number of children", 0, 6, 0),
    ("family size", 1, 13, 0),
    ("number of employees", 1, 200, 0),
    ("cups of coffee a day", 0, 9, 0),
    ("days absent last year", 0, 60, 0),
    ("grade average", 5, 10, 2),
    ("CGPA", 4, 10, 1),
    ("years of education", 6, 22, 0),
    ("years at the company", 0, 35, 0),
    ("body mass index", 15, 45, 1),
    ("height in cm", 140, 205, 0),
    ("weight in kg", 40, 140, 0),
    ("minutes of exercise", 0, 180, 0),
    ("screen time in hours", 0, 14, 1),
    ("score", 0, 100, 0),
    ("visits to a doctor", 0, 20, 0),
    ("year of birth", 1940, 2008, 0),
)

TITLES = _items("""{group} {state}; {state} of {group}s; {place} {state} Survey; Mental Health in {place}; {state} and
    {state}; {group} Survey {year}; Mental Health; Survey on {state}; {state} Scales; {state} Questionnaire; {place}
    Health Study; {state} in {year}; {group} Study; Mental Health in Tech {year}""")

QUESTIONS = _items("""{thing}; {thing}; {thing}; {thing}; {thing} at {place}; {thing} in the past {period}; {quality}
    {thing}; {quality} {thing}; {state}; {state} at {place}; {state} in the past {period}; feels {feeling}; feels
    {feeling} at {place}; {feeling}, {feeling}; {feeling} and {feeling}; trouble {doing}; finds it hard to {act};
    {doing}; {doing} with {people}; time for {doing}; would {act} with {people}; could {act}; able to {act}; {people}
    know about {thing}; talks to {people} about {state}; comfortable {doing} with {people}; {thing} provided by
    {people}; history of {state}; family history of {state}; past {state}; current {state}; diagnosed with {state};
    treatment for {state}; {state} treated; {state} untreated; knows about {thing}; satisfied with {thing}; {thing}
    satisfaction; {thing} pressure; {thing} interferes with {thing}; worried about {thing}; changes in {thing};
    {thing} changes; how often {doing}; interest in {thing}; interested in {doing}; ever had {state}; thoughts of
    {state}; support from {people}; support for {thing}; bad experience with {people}; seriousness of {thing}; number
    of {people}; {people} with {state}; {thing} or {thing}; was {feeling}; could not {act}; no {thing}; role of
    {people}; importance of {thing}; access to {thing}; use of {thing}; discussed {state} with {people}; consequences
    of {state}; hard to {act}; felt {feeling} without {thing}; aware of {thing}; tell {people}; told {people}; known
    at {place}; when {feeling}; no {thing}; no {doing}; no {feeling}; hurts {thing}; {state} severity; {state} now;
    easily {feeling}; hard to {act}; open to {thing}; struggles to {act}; {people} grew up; changed {thing}; {thing}
    in {place}; little {thing}""")

FILLERS: Mapping[str, tuple[str, ...]] = {
    "group": _items("""Student; Worker; Employee; Nurse; Teacher; Patient; Adult; Parent; Tenant; Driver; Youth;
        Family; Staff; Manager; Citizen; Gamer; Farmer; Apprentice"""),
    "year": _items("2014; 2016; 2017; 2018; 2019; 2020; 2021; 2022; 2023; 2024"),
    "period": _items("week; month; year; day; two weeks; six months; winter"),
    "place": _items("""work; home; school; university; office; campus; tech; class; night; city; company; workplace;
        hospital; community; public; interview; previous employer"""),
    "people": _items("""family; friends; coworkers; colleagues; supervisor; employer; manager; doctor; teachers;
        parents; partner; others; neighbours; previous employers; employees; professionals; clients; people; children;
        team"""),
    "quality": _items("""mental health; physical health; academic; work; financial; social; emotional; family;
        medical; general; personal; daily; online; study; job; career; dietary; sleep; self-rated; perceived;
        professional; formal; anonymous; good; bad; negative; positive; high; low; strong; suicidal"""),
    "state": _items("""depression; anxiety; stress; mental illness; mental health; mental health disorder; panic;
        burnout; loneliness; insomnia; tiredness; anger; sadness; fear; grief; mood swings; suicidal thoughts;
        wellbeing; health; exhaustion; worry; pain; addiction; growing stress; mental health condition; physical
        health; disorder; illness; social weakness; coping struggles; satisfaction; happiness; self-esteem;
        personality; severity"""),
    "feeling": _items("""nervous; sad; scared; tense; calm; relaxed; lonely; tired; restless; irritable; touchy;
        agitated; worthless; hopeless; down-hearted; blue; upset; impatient; enthusiastic; extraverted; critical;
        dependable; anxious; open; reserved; quiet; sympathetic; warm; disorganized; careless; emotionally stable;
        conventional; uncreative; self-disciplined; quarrelsome; complex; new experiences; intolerant; meaningless;
        faint; shaky; terrified; happy; proud; guilty; bored; angry; safe; comfortable; stressed; open-minded; easily
        upset; panicky; upset by trifles; intolerant; worthwhile; native; observed; experienced; taken seriously;
        treated; untreated"""),
    "doing": _items("""sleeping; breathing; swallowing; eating; working; studying; relaxing; winding down;
        concentrating; exercising; reading; drinking; smoking; waiting; meeting; trembling; sweating; talking; asking
        for help; seeking help; taking leave; discussing mental health; making decisions; getting worked up;
        over-reacting; coping; worrying; staying indoors; going out; living; feeling; being interrupted; taking
        medication"""),
    "act": _items("""relax; sleep; calm down; wind down; work; seek help; seek treatment; take medical leave; discuss
        it; start something; look forward to anything; get going; enjoy things; feel anything; tolerate interruptions;
        tolerate delays; concentrate; cope; take part; bring it up; reveal it; share it; ask; stay; leave; respond;
        become enthusiastic; make a fool of oneself; feel positive; see a future; find energy; experience joy;
        swallow; respond; be upset by trifles; be thrown; tell"""),
    "thing": _items("""sleep; sleep duration; stress; pressure; workload; job; work; study; studies; exams; grades;
        money; debt; income; rent; food; diet; dietary habits; weight; energy; nervous energy; appetite; mouth
        dryness; breath; heart rate; hands; headache; symptoms; diagnosis; treatment; medication; therapy;
        counselling; benefits; health benefits; insurance; coverage; care; care options; wellness program; resources;
        help; anonymity; privacy; leave; medical leave; remote work; company; tech company; tech role; company size;
        employees; employer; occupation; profession; position; country; state; territory; city; gender; sex;
        education; degree; religion; orientation; race; marriage; voting; english native; handedness; family; family
        history; friends; friendship; relationship; initiative; decision; interest; work interest; situation; worth;
        life; future; feelings; mood; emotion; temper; memory; attention; productivity; habits; changes; productivity
        loss; interview; mental health interview; conversation; discussion; consequence; experience; history;
        exposure; reaction; stigma; reputation; career; identity; sharing; industry; opinion; wellness; disability;
        health; physical illness; days indoors; weather; noise; housing; traffic; commute; screen time; social media;
        alcohol; caffeine; sport; music; pets; garden; holidays; safety; trust; success; responsibility; satisfaction;
        performance; deadline; meetings; area; percentage of time; time; choice; primary role; openness; online
        resources; local resources; importance; observed consequences; tension; prospects; meaning; hope; joy;
        interest; enthusiasm; enjoyment; initiative; heart racing; dry mouth; writing hand; bad response; past
        disorder; sought treatment; mental importance; industry support; help resources; hours a day; children in
        family"""),
}


def glossary() -> tuple[str, ...]:
    """Every word of the fillers, questions, answers and lists once."""
    items = (QUESTIONS, *FILLERS.values(), *SCALES, *OPTIONS, COUNTRIES, CITIES, PROFESSIONS, DEGREES)
    words = {word.strip(",") for named in items for item in named for word in item.split() if "{" not in word}
    return tuple(sorted(words))
